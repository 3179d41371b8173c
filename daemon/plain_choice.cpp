#include "daemon/plain_choice.hpp"

#include "codec/plain_form.hpp"

#include <algorithm>

namespace gradsieve::daemon {
namespace {

constexpr std::string_view kShardedRefusal = "the sharded plan has a codec of its own for averages";
constexpr std::string_view kDeviceRefusal = "a GPU codes tensors together, and what each takes is not known";
constexpr std::string_view kEmptyRefusal = "it has no elements";

std::string_view refusal_of(const HostedTensor& tensor) noexcept {
    if (tensor.elements == 0) return kEmptyRefusal;
    if (tensor.on_device) return kDeviceRefusal;
    return tensor.down ? kShardedRefusal : codec::plain_refusal(tensor.written);
}

double plain_bytes(const HostedTensor& tensor) {
    return static_cast<double>(tensor.elements) * codec::plain_bits(tensor.written) / 8;
}

std::string count_of(std::size_t part, std::size_t whole) {
    return std::to_string(part) + " of " + std::to_string(whole) + (whole == 1 ? " tensor" : " tensors");
}

}  // namespace

void PlainChoice::lay_out(std::span<const HostedTensor> tensors) {
    chosen_.assign(tensors.size(), {});
    for (std::size_t at = 0; at < tensors.size(); ++at) chosen_[at].refusal = refusal_of(tensors[at]);
}

void PlainChoice::start(const GroupTotals& group, std::span<HostedTensor> tensors) {
    for (const auto at : group.tensors) {
        chosen_[at].choice.reset();
        set_plain(chosen_[at], tensors[at], false);
    }
}

void PlainChoice::on_committed(const GroupTotals& group, Step step, std::span<HostedTensor> tensors,
                               const SteeredStep& took, bool is_asked) {
    const bool is_chosen = is_asked && took.members > 1;
    for (const auto at : group.tensors) {
        auto& chosen = chosen_[at];
        auto& tensor = tensors[at];
        if (!is_chosen || !chosen.refusal.empty()) {
            chosen.choice.reset();
            set_plain(chosen, tensor, false);
            continue;
        }
        if (!chosen.choice) chosen.choice.emplace(plain_bytes(tensor));
        // Where this node's gradient counted as zero, the step says nothing of it.
        if (tensor.coding.was_encoded(step))
            chosen.choice->on_step({.was_plain = chosen.is_plain,
                                    .coding_ms = tensor.coding.ms,
                                    .bytes = static_cast<double>(tensor.totals.payload_bytes),
                                    .link_ms_per_byte = took.link_ms_per_byte,
                                    .best_ms_per_byte = took.best_ms_per_byte});
        set_plain(chosen, tensor, chosen.choice->is_plain());
    }
}

void PlainChoice::set_plain(Chosen& chosen, HostedTensor& tensor, bool is_plain) {
    // A task of a step that has ended without a result may still read the pipeline: then at the next step.
    if (chosen.is_plain == is_plain || tensor.tasks_out > 0) return;
    chosen.is_plain = is_plain;
    tensor.pipeline = is_plain ? codec::plain_pipeline(tensor.written) : tensor.written;
    tensor.codec_text = codec::canonical_text(tensor.pipeline, codec::Knobs::kKeep);
}

PlainView PlainChoice::view(std::span<const HostedTensor> tensors, bool has_budget) const {
    PlainView view;
    std::size_t known = 0;
    std::string names;  ///< "bf16", or "bf16 or f32"
    double chosen_ms = 0;
    for (std::size_t at = 0; at < tensors.size(); ++at) {
        const auto& chosen = chosen_[at];
        if (!chosen.refusal.empty()) {
            const auto found = std::ranges::find(view.refusals, chosen.refusal, &PlainView::Refusal::text);
            if (found == view.refusals.end())
                view.refusals.push_back({chosen.refusal, 1});
            else
                ++found->tensors;
            continue;
        }
        ++view.eligible;
        if (!chosen.choice) continue;
        const auto& choice = *chosen.choice;
        view.moves += choice.moves();
        if (choice.coded_ms() == 0 || choice.plain_ms() == 0) continue;
        ++known;
        view.coded_ms += choice.coded_ms();
        view.plain_ms += choice.plain_ms();
        const bool is_aside = choice.verdict() == exchange::AsideVerdict::kPlain;
        chosen_ms += is_aside ? choice.plain_ms() : choice.coded_ms();
        if (choice.verdict() == exchange::AsideVerdict::kTrying) ++view.trying;
        if (!is_aside) continue;
        ++view.aside;
        const auto name = codec::plain_name(tensors[at].written);
        if (names.find(name) == std::string::npos) names.append(names.empty() ? "" : " or ").append(name);
    }
    if (has_budget)
        view.text = "on: a budget decides what is sent";
    else if (view.eligible == 0)
        view.text = "on: no tensor may step aside";
    else if (known == 0)
        view.text = "on: the link has not been measured yet";
    else if (view.aside == 0 && view.plain_ms < view.coded_ms)
        view.text = "on: plain bytes would not be clearly faster";
    else if (view.aside == 0)
        view.text = "on: codecs are faster than the link would be with plain bytes";
    else if (view.aside == view.eligible)
        view.text = "off: link faster than codec, " + count_of(view.aside, tensors.size()) + " sent as " + names;
    else
        view.text =
            "off for " + count_of(view.aside, tensors.size()) + ", sent as " + names + ": link faster than codec";
    if (view.trying > 0) view.text += "; being tried plain: " + count_of(view.trying, tensors.size());
    if (known > 0) view.saved_ms = (view.aside > 0 ? view.coded_ms : view.plain_ms) - chosen_ms;
    return view;
}

}  // namespace gradsieve::daemon

#include "daemon/codec_choice.hpp"

#include "codec/density.hpp"
#include "codec/phases.hpp"
#include "codec/settle_whole.hpp"
#include "codec/shard.hpp"
#include "codec/stages/warmup.hpp"

#include <algorithm>

namespace gradsieve::daemon {

namespace {

bool is_plain(const codec::Pipeline& pipeline) {
    return !codec::has_phases(pipeline) && codec::loses_nothing(pipeline);
}

double bits_of_a_sending_step(const codec::Pipeline& pipeline, ElementCount elements) noexcept {
    if (codec::has_phases(pipeline)) {
        const auto factors =
            codec::phase_elements(pipeline, elements, 0) + codec::phase_elements(pipeline, elements, 1);
        return codec::expected_bits(pipeline) * static_cast<double>(factors) /
               static_cast<double>(std::max<ElementCount>(elements, 1));
    }
    return codec::expected_bits(pipeline);
}

struct Named {
    std::string text;
    std::string origin;
};
Named named_codec(const Config& config, const std::string& client_codec) {
    if (!client_codec.empty()) return {client_codec, "client"};
    if (!config.codec.empty()) return {config.codec, "configuration"};
    if (config.nodes.size() <= 1) return {std::string(kPlainCodec), "default: single node"};
    return {std::string(kDefaultCodec), "default"};
}

}  // namespace

double estimated_bits_per_element(const codec::Pipeline& pipeline, ElementCount elements) noexcept {
    return bits_of_a_sending_step(pipeline, elements) / pipeline.front.period;
}

namespace {

/// What small tensors are sent by. Without a front of its own it takes over `main`'s, as far as it has a use for it.
Result<codec::Pipeline> small_pipeline(const std::string& text, const codec::Pipeline& main) {
    GRADSIEVE_ASSIGN(auto small, codec::parse_pipeline(text));
    if (small.front == codec::Front{}) {
        // The optimizer has no momentum of its own then, whatever a tensor's size.
        if (!codec::has_variance(small)) small.front = main.front;
        small.front.period = main.front.period;
        small.front.is_rotated = false;     // of use to one scale for many elements
        small.front.is_difference = false;  // all of it is sent anyway
        small = codec::settled_pipeline(small);
    }
    if (!codec::has_residual(small)) {
        small.front.beta = small.front.low_pass = 1;
        small.front.period = 1;
    }
    return small;
}

Result<CodecChoice> choose_pipelines(const Config& config, const std::string& client_codec,
                                     std::span<const shm::TensorEntry> tensors) {
    const auto named = named_codec(config, client_codec);
    const auto split = split_budget(named.text);
    if (!split.is_ok()) return split.error().with_context("codec of the " + named.origin);
    const auto parsed = codec::parse_codec(split->codec);
    if (!parsed.is_ok()) return parsed.error().with_context("codec of the " + named.origin);
    const auto& main = parsed->main;
    CodecChoice choice{codec::canonical_codec_text(*parsed), named.origin, main,
                       std::vector<codec::Pipeline>(tensors.size(), main)};
    choice.budget = split->budget;
    if (choice.budget.is_set()) choice.text += "; " + budget_text(choice.budget);
    std::vector<bool> is_ruled(tensors.size(), false);
    for (std::size_t index = 0; index < tensors.size(); ++index)
        if (const auto* rule = codec::ruled_pipeline(*parsed, tensors[index].name, tensors[index].elements())) {
            choice.pipelines[index] = *rule;
            is_ruled[index] = true;
        }
    for (std::size_t index = 0; index < tensors.size(); ++index)
        choice.pipelines[index] = codec::settle_whole(choice.pipelines[index], tensors[index].shape);
    if (is_plain(main)) return choice;

    GRADSIEVE_ASSIGN(const auto small, small_pipeline(config.small_codec, main));
    const auto bits_of = [&](std::size_t index, const codec::Pipeline& pipeline) {
        const auto elements = tensors[index].elements();
        return static_cast<double>(elements) * estimated_bits_per_element(pipeline, elements);
    };
    std::vector<std::size_t> candidates;
    double main_bits = 0;
    for (std::size_t index = 0; index < tensors.size(); ++index) {
        const auto elements = tensors[index].elements();
        const bool is_small = tensors[index].shape.size() <= 1 || elements < config.small_elements;
        if (is_small && !is_ruled[index])
            candidates.push_back(index);
        else
            main_bits += bits_of(index, choice.pipelines[index]);
    }
    // Smallest first, while all of them together stay within their share of the step's bytes.
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](std::size_t a, std::size_t b) { return tensors[a].elements() < tensors[b].elements(); });
    for (const auto index : candidates) main_bits += bits_of(index, choice.pipelines[index]);
    double small_bits = 0;
    for (const auto index : candidates) {
        const double bits = bits_of(index, small);
        const double bits_otherwise = bits_of(index, choice.pipelines[index]);
        small_bits += bits;
        main_bits -= bits_otherwise;
        // lowrank sends vectors as they are, which costs more.
        const bool is_cheaper = codec::has_phases(main) && bits < bits_otherwise;
        if (!is_cheaper && small_bits > config.small_share * (small_bits + main_bits)) continue;
        choice.pipelines[index] = small;
    }
    return choice;
}

/// Of a budget in the codec's own text; one of the configuration's leaves alone what it cannot move.
Status check_budget(const Config& config, const CodecChoice& choice) {
    if (!choice.budget.is_set()) return {};
    if (config.plan == "sharded")
        return {StatusCode::kInvalidArgument, "codec of the " + choice.origin + ": " + budget_text(choice.budget) +
                                                  " under plan = \"sharded\": allowed is plan = \"gather\"; leave the "
                                                  "budget out, or change the plan in [codec] on all nodes"};
    const auto response = codec::density_response(choice.main);
    const bool moves = std::ranges::any_of(
        choice.pipelines, [](const codec::Pipeline& pipeline) { return codec::density_response(pipeline).is_ok(); });
    if (moves || response.is_ok()) return {};
    return response.error().with_context("codec of the " + choice.origin);
}

}  // namespace

Result<CodecChoice> choose_codecs(const Config& config, const std::string& client_codec,
                                  std::span<const shm::TensorEntry> tensors) {
    GRADSIEVE_ASSIGN(auto choice, choose_pipelines(config, client_codec, tensors));
    GRADSIEVE_TRY(check_budget(config, choice));
    choice.downs.resize(tensors.size());
    if (config.plan != "sharded" || config.nodes.size() < 2) return choice;
    GRADSIEVE_ASSIGN(const auto down, codec::parse_pipeline(config.down_codec));
    GRADSIEVE_TRY(codec::check_down_pipeline(down));
    for (std::size_t index = 0; index < tensors.size(); ++index)
        if (tensors[index].elements() > 0) choice.downs[index] = codec::down_pipeline(choice.pipelines[index], down);
    return choice;
}

}  // namespace gradsieve::daemon

#include "daemon/budget_steering.hpp"

#include "codec/density.hpp"
#include "codec/stages/accumulate.hpp"
#include "daemon/codec_choice.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace gradsieve::daemon {

namespace {

/// In place of a range without an end: more than any codec's numbers need.
constexpr std::int32_t kMostPlaces = 24 * exchange::kPlacesPerOctave;
/// First of the words that are kept, so that memory that was never written is not taken for a state.
constexpr std::uint64_t kKeptMark = 0x474e'4952'4545'5453;  // "STEERING"

exchange::DensityRange range_of(codec::DensityLimits limits) {
    exchange::DensityRange range;
    while (range.least > -kMostPlaces && exchange::density_at(range.least) > limits.least) --range.least;
    while (range.most < kMostPlaces && exchange::density_at(range.most) < limits.most) ++range.most;
    return range;
}

/// Bytes follow a move by what the selector is like; times have noise of their own, and are looked at by their median.
exchange::DensityPace pace_of(codec::DensityResponse response, bool is_timed) {
    if (response == codec::DensityResponse::kGradual)
        return {.settle_steps = 16, .window_steps = 16, .takes_median = is_timed, .is_gradual = true};
    if (is_timed) return {.settle_steps = 1, .window_steps = 9, .takes_median = true, .is_gradual = true};
    return {.window_steps = response == codec::DensityResponse::kEstimated ? 4U : 1U};
}

constexpr unsigned kSuspicionShift = 8;
using KeptWords = std::array<std::uint64_t, kSteeringBytes / sizeof(std::uint64_t)>;

std::uint64_t pair_of(std::uint32_t low, std::uint32_t high) { return low | (std::uint64_t{high} << 32U); }

KeptWords words_of(const exchange::DensityState& state, bool is_timed) {
    return {
        kKeptMark,
        pair_of(static_cast<std::uint32_t>(state.place), static_cast<std::uint32_t>(state.direction)),
        pair_of(state.settling, state.reversals | (static_cast<std::uint32_t>(state.suspicion + 1) << kSuspicionShift)),
        pair_of(state.quiet, state.seen),
        std::bit_cast<std::uint64_t>(state.cost_sum),
        std::bit_cast<std::uint64_t>(state.fixed_sum),
        std::bit_cast<std::uint64_t>(state.budget),
        is_timed ? 1U : 0U};
}

exchange::DensityState state_of(const KeptWords& words) {
    const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
    const auto high = [](std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32U); };
    return {.place = static_cast<std::int32_t>(low(words[1])),
            .settling = low(words[2]),
            .reversals = high(words[2]) & ((1U << kSuspicionShift) - 1),
            .direction = static_cast<std::int32_t>(high(words[1])),
            .suspicion = static_cast<std::int32_t>(high(words[2]) >> kSuspicionShift) - 1,
            .quiet = low(words[3]),
            .seen = high(words[3]),
            .cost_sum = std::bit_cast<double>(words[4]),
            .fixed_sum = std::bit_cast<double>(words[5]),
            .budget = std::bit_cast<double>(words[6])};
}

const std::byte* kept_words(const HostedTensor& tensor, Step committed) {
    return tensor.generations[tensor.live_generation(committed)].steering;
}

double written_bytes(const HostedTensor& tensor) {
    return static_cast<double>(tensor.elements) * estimated_bits_per_element(tensor.written, tensor.elements) / 8;
}

std::string_view verdict_name(exchange::DensityVerdict verdict) {
    switch (verdict) {
        case exchange::DensityVerdict::kSearching: return "searching";
        case exchange::DensityVerdict::kHolding: return "holding";
        case exchange::DensityVerdict::kDensest: return "densest";
        case exchange::DensityVerdict::kOverAtLeast: break;
    }
    return "over at least";
}

}  // namespace

void BudgetSteering::lay_out(std::span<const HostedTensor> tensors, std::span<const GroupTotals> groups,
                             const Budget& own, const Config& config) {
    own_ = own;
    groups_.assign(groups.size(), {});
    double bytes_of_all = 0;
    for (const auto& tensor : tensors) bytes_of_all += written_bytes(tensor);
    const bool is_asked = budget(config).is_set();
    for (std::size_t number = 0; number < groups.size(); ++number) {
        auto& group = groups_[number];
        group.all = groups[number].tensors;
        codec::DensityLimits limits;
        double bytes = 0;
        for (const auto at : group.all) {
            bytes += written_bytes(tensors[at]);
            const auto response = codec::density_response(tensors[at].written);
            if (!response.is_ok() || tensors[at].down || tensors[at].elements == 0) continue;
            group.tensors.push_back(at);
            group.response = std::max(group.response, *response);
            const auto own_limits = codec::density_limits(tensors[at].written, tensors[at].elements);
            limits.least = std::min(limits.least, own_limits.least);
            limits.most = std::max(limits.most, own_limits.most);
            if (is_asked && !group.keeper) group.keeper = at;
        }
        group.range = range_of(limits);
        if (bytes_of_all > 0) group.share = bytes / bytes_of_all;
    }
}

bool BudgetSteering::is_kept_with(exchange::TensorNumber tensor) const noexcept {
    return std::ranges::any_of(groups_, [&](const Steered& group) { return group.keeper == tensor; });
}

Budget BudgetSteering::budget(const Config& config) const noexcept {
    if (own_.is_set()) return own_;
    return {static_cast<double>(config.budget_bytes_per_step), config.budget_ms_per_step};
}

void BudgetSteering::begin(Steered& group, bool is_timed, const exchange::DensityState& state) {
    group.is_timed = is_timed;
    group.controller.emplace(group.range, pace_of(group.response, is_timed));
    group.controller->resume(state);
}

void BudgetSteering::start(exchange::GroupNumber number, Step committed, std::span<HostedTensor> tensors) {
    auto& group = groups_[number];
    if (group.tensors.empty()) return;
    begin(group, false, {});
    const std::byte* kept = group.keeper && committed > 0 ? kept_words(tensors[*group.keeper], committed) : nullptr;
    if (kept != nullptr) {
        KeptWords words{};
        std::memcpy(words.data(), kept, sizeof words);
        if (words[0] == kKeptMark) begin(group, words.back() == 1, state_of(words));
    }
    set_density(group, tensors);
}

BudgetSteering::Costs BudgetSteering::sent_bytes(const Steered& group, Step step,
                                                 std::span<const HostedTensor> tensors) {
    Costs costs;
    for (const auto at : group.all) {
        const auto& tensor = tensors[at];
        if (codec::is_waiting(tensor.pipeline, step)) continue;
        const double bytes = static_cast<double>(tensor.totals.payload_bytes) / tensor.pipeline.front.period;
        costs.all += bytes;
        if (!std::ranges::binary_search(group.tensors, at)) costs.fixed += bytes;
    }
    return costs;
}

void BudgetSteering::on_committed(exchange::GroupNumber number, Step step, std::span<HostedTensor> tensors,
                                  const SteeredStep& took, const Config& config) {
    auto& group = groups_[number];
    if (!group.controller) return;
    group.last = took;
    const auto limits = budget(config);
    const auto place = group.controller->state().place;
    // Some node's gradient may have counted as zero: then this step says nothing.
    const auto is_whole = [&] {
        return std::ranges::all_of(group.tensors, [&](auto at) {
            return tensors[at].generations[tensors[at].live_generation(step)].stamp == step;
        });
    };
    const auto sends = [&] {
        return std::ranges::any_of(group.tensors,
                                   [&](auto at) { return !codec::is_waiting(tensors[at].pipeline, step); });
    };
    if (!limits.is_set()) {
        if (place != 0) begin(group, false, {});
    } else if (took.members > 1 && is_whole() && sends()) {
        const auto bytes = sent_bytes(group, step, tensors);
        group.last_bytes = bytes.all;
        judge(group, bytes, limits);
    }
    if (group.controller->state().place != place) {
        ++group.moves;
        set_density(group, tensors);
    }
    keep(group, step, tensors);
}

void BudgetSteering::judge(Steered& group, const Costs& bytes, const Budget& limits) {
    const bool is_timed = limits.ms_per_step > 0;
    if (is_timed != group.is_timed) begin(group, is_timed, {.place = group.controller->state().place});
    if (!is_timed) {
        const auto others = static_cast<double>(group.last.members - 1);
        return group.controller->on_step(bytes.all * others, bytes.fixed * others, limits.bytes_per_step * group.share);
    }
    if (group.last.link_ms_per_byte == 0) return;  // nothing has been answered yet
    // What stays the same is left in: a single step's coding may lie, and the median looks at whole costs.
    group.controller->on_step(group.last.codec_ms + bytes.all * group.last.link_ms_per_byte, 0,
                              limits.ms_per_step * group.share);
}

void BudgetSteering::set_density(Steered& group, std::span<HostedTensor> tensors) {
    const double density = group.controller->density();
    for (const auto at : group.tensors) {
        auto& tensor = tensors[at];
        tensor.pipeline =
            group.controller->state().place == 0 ? tensor.written : codec::at_density(tensor.written, density);
        tensor.codec_text = codec::canonical_text(tensor.pipeline, codec::Knobs::kKeep);
    }
}

/// Into the generation that becomes live with the step, so that whoever goes on from it goes on at this density.
void BudgetSteering::keep(const Steered& group, Step step, std::span<HostedTensor> tensors) {
    if (!group.keeper) return;
    const auto& keeper = tensors[*group.keeper];
    const auto& generation = keeper.generations[keeper.live_generation(step)];
    // Where a gradient counted as zero, the older generation stays live, and may be copied to disk right now.
    if (generation.steering == nullptr || generation.stamp != step) return;
    const auto words = words_of(group.controller->state(), group.is_timed);
    std::memcpy(generation.steering, words.data(), sizeof words);
}

BudgetView BudgetSteering::view(exchange::GroupNumber number, std::span<const HostedTensor> tensors,
                                const Config& config) const {
    const auto& group = groups_[number];
    const auto limits = budget(config);
    BudgetView view{.verdict = "off", .text = {}, .limit = limits.limit() * group.share, .moves = group.moves};
    if (group.tensors.empty()) {
        view.text = "off: no tensor's codec has a number that a budget could move";
        return view;
    }
    if (!group.controller || group.last.members < 2) {
        view.text = "off: nothing has been sent to another node";
        return view;
    }
    view.verdict = verdict_name(group.controller->verdict());
    view.cost = group.controller->cost();
    view.density = group.controller->density();
    const auto& largest =
        *std::ranges::max_element(group.tensors, {}, [&](exchange::TensorNumber at) { return tensors[at].elements; });
    view.text = codec::density_text(tensors[largest].pipeline) + " in place of " +
                codec::density_text(tensors[largest].written);
    if (group.controller->verdict() == exchange::DensityVerdict::kDensest) view.text += ": more would change nothing";
    if (group.last.link_ms_per_byte > 0) {
        double elements = 0;
        for (const auto at : group.all) elements += static_cast<double>(tensors[at].elements);
        view.coded_ms = group.last.codec_ms + group.last_bytes * group.last.link_ms_per_byte;
        view.plain_ms = sizeof(float) * elements * group.last.best_ms_per_byte;
    }
    if (group.controller->verdict() == exchange::DensityVerdict::kOverAtLeast)
        view.text += ": the least that these codecs send is over the budget";
    return view;
}

}  // namespace gradsieve::daemon

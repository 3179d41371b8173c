#include "codec/density.hpp"

#include "codec/stages/stage_list.hpp"
#include "codec/stages/stage_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace gradsieve::codec {
namespace {

constexpr double kThresholdReach = 0x1p20;

Status no_density(const Pipeline& pipeline, std::string_view why) {
    return bad_text("budget with codec", canonical_text(pipeline, Knobs::kKeep),
                    "a selector whose number each node may move alone: topk, block_topk, gaussian_k, sidco, "
                    "adaptive_random, variance, variance_hybrid or threshold",
                    why);
}

/// The number by which a node sends more or less, alone; null: all nodes have to have the same one, or there is none.
double Selector::*number_of(const Selector& selector) noexcept {
    const SelectorStage& stage = stage_of(selector);
    if (stage.selection == Selection::kKeyed) return nullptr;
    if (stage.has_ratio) return &Selector::ratio;
    if (stage.has_tau) return &Selector::tau;
    return stage.tests_variance ? &Selector::alpha : nullptr;
}
bool is_share(const Selector& selector) noexcept { return number_of(selector) == &Selector::ratio; }

}  // namespace

Result<DensityResponse> density_response(const Pipeline& pipeline) {
    const Selector& selector = pipeline.selector;
    if (has_phases(pipeline))
        return no_density(pipeline, "all nodes have to make factors and sketches of one size: write a size that fits");
    if (has_model_scope(pipeline))
        return no_density(pipeline, "one ratio selects from all tensors together: leave scope=model out");
    if (has_warmup(pipeline))
        return no_density(pipeline, "warmup gives the first steps ratios of their own: leave one of the two out");
    if (is_keyed(selector))
        return no_density(
            pipeline,
            "positions are drawn alike on every node only with the same number on every node, and what it "
            "sends is known beforehand: write the ratio that fits");
    if (selection_of(selector) == Selection::kEvery)
        return no_density(pipeline, "all sends every element: take a selector, or leave the budget out");
    if (!is_share(selector) && selector.*number_of(selector) == 0)
        return no_density(pipeline, "alpha = 0 sends everything: write one above 0 to begin with");
    if (selection_of(selector) == Selection::kEstimated) return DensityResponse::kEstimated;
    if (!is_share(selector)) return DensityResponse::kGradual;
    // Behind a gate, what has r^2 below it waits.
    return selector.gate > 0 ? DensityResponse::kGradual : DensityResponse::kExact;
}

Pipeline at_density(const Pipeline& written, double density) {
    Pipeline pipeline = written;
    Selector& selector = pipeline.selector;
    const auto number = number_of(selector);
    if (number == nullptr) return pipeline;
    if (is_share(selector)) {
        selector.ratio = std::min(1.0, selector.ratio * density);
        return pipeline;
    }
    selector.*number = std::clamp(selector.*number / density, kQuantum.low, kQuantum.high);
    // What sign(scale=tau) sends is the selector's tau, whichever that is.
    if (has_tau(selector) && written.quantizer.tau == written.selector.tau) pipeline.quantizer.tau = selector.tau;
    return pipeline;
}

DensityLimits density_limits(const Pipeline& written, ElementCount elements) noexcept {
    const Selector& selector = written.selector;
    if (number_of(selector) == nullptr) return {};
    if (!is_share(selector)) return {1 / kThresholdReach, kThresholdReach};
    const Selection selection = selection_of(selector);
    const bool has_blocks = selection == Selection::kBlockBest || selection == Selection::kBlockDrawn;
    const auto whole = has_blocks ? std::min(elements, static_cast<ElementCount>(selector.block)) : elements;
    const double one = 1.0 / static_cast<double>(std::max<ElementCount>(whole, 1));
    return {std::min(1.0, one / selector.ratio), 1 / selector.ratio};
}

std::string density_text(const Pipeline& pipeline) {
    const auto number = number_of(pipeline.selector);
    if (number == nullptr) return {};
    const std::string_view name = is_share(pipeline.selector) ? "ratio" : number == &Selector::alpha ? "alpha" : "tau";
    std::array<char, 32> digits{};
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), pipeline.selector.*number,
                                            std::chars_format::general, 3);
    GRADSIEVE_CHECK(error == std::errc());
    return std::string(name) + " = " + std::string(digits.data(), end);
}

}  // namespace gradsieve::codec

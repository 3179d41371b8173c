// Selectors as text: names, parameters, and what a random one may not have behind it.
#include "codec/pipeline_stages.hpp"

#include <algorithm>
#include <bit>

namespace gradsieve::codec {
namespace {

/// In the order of their enumerators.
constexpr std::array<std::string_view, 12> kSelectorNames = {
    "all",        "variance", "variance_hybrid", "topk",      "threshold",     "block_topk",
    "gaussian_k", "sidco",    "randk",           "bernoulli", "biased_random", "adaptive_random"};
constexpr std::array<std::string_view, 2> kModeNames = {"conserving", "faithful"};
constexpr std::array<std::string_view, 2> kTopKScopes = {"tensor", "model"};

constexpr NumberRange kNotNegative = {0, kLargeNumber, false, "[0, 1e30]"};
constexpr NumberRange kFraction = {0, 1, true, "(0, 1]"};
/// Random words have 32 bits.
constexpr NumberRange kProbability = {0x1p-32, 1, false, "[2^-32, 1]"};
constexpr NumberRange kStages = {1, 8, false, "a whole number in [1, 8]"};
constexpr NumberRange kBlock = {64, kTileElements, false, "a power of two in [64, 4096]"};

/// Whether a list may hold zeros, which those whose positions follow from a key do.
bool codes_zeros(QuantizerKind quantizer) {
    switch (quantizer) {
        case QuantizerKind::kF32:
        case QuantizerKind::kF16:
        case QuantizerKind::kBf16:
        case QuantizerKind::kSign:
        case QuantizerKind::kNatural:
        case QuantizerKind::kDither:
        case QuantizerKind::kExponentialDither:
        case QuantizerKind::kInteger: return true;
        case QuantizerKind::kPow2:
        case QuantizerKind::kTwoMean:
        case QuantizerKind::kMinMax:
        case QuantizerKind::kVote: break;
    }
    return false;
}

/// Where what a random selector leaves out goes. Unscaled, values over their probability would be a contraction only
/// where more than half is sent, and there less of one than those that are sent as they are.
Status read_selector_feedback(ArgumentReader& arguments, Selector& ret_selector) {
    constexpr std::array<std::string_view, 2> kNames = {"scaled", "none"};
    ret_selector.feedback = arguments.word("feedback", 0, kNames) == 1 ? Feedback::kNone : Feedback::kScaled;
    return arguments.finish();
}

std::string selector_feedback_text(const Selector& selector) {
    return "feedback=" + std::string(kFeedbackNames[static_cast<std::size_t>(selector.feedback)]) + ")";
}

}  // namespace

std::span<const std::string_view> selector_names() noexcept { return kSelectorNames; }

std::string_view name_of(const Selector& selector) noexcept {
    return kSelectorNames[static_cast<std::size_t>(selector.kind)];
}

Status read_whole(ArgumentReader& arguments, double number, std::string_view what, const NumberRange& range,
                  int& ret_number) {
    GRADSIEVE_TRY(arguments.finish());
    ret_number = static_cast<int>(number);
    if (static_cast<double>(ret_number) == number) return {};
    return bad_text(what, number_text(number), range.text, "write a number in that range");
}

std::string knob_text(double value, Knobs knobs) { return knobs == Knobs::kBlank ? "*" : number_text(value); }

Status read_selector(const StageText& text, Selector& ret_selector) {
    ArgumentReader arguments(text);
    ret_selector.kind = static_cast<SelectorKind>(*position_of(std::span(kSelectorNames), text.name));
    switch (ret_selector.kind) {
        case SelectorKind::kAll: break;
        case SelectorKind::kVariance:
            ret_selector.alpha = arguments.number("alpha", 1.5, kNotNegative);
            ret_selector.zeta = arguments.number("zeta", 0.999, kFraction);
            ret_selector.is_faithful = arguments.word("mode", 0, kModeNames) == 1;
            break;
        case SelectorKind::kVarianceHybrid:
            ret_selector.tau = arguments.number("tau", std::nullopt, kQuantum);
            ret_selector.alpha = arguments.number("alpha", 2, kNotNegative);
            ret_selector.zeta = arguments.number("zeta", 0.999, kFraction);
            break;
        case SelectorKind::kTopK:
            ret_selector.ratio = arguments.number("ratio", std::nullopt, kFraction);
            ret_selector.scope = arguments.word("scope", 0, kTopKScopes) == 1 ? Scope::kModel : Scope::kTensor;
            ret_selector.gate = arguments.number("gate", 0, kNotNegative);
            break;
        case SelectorKind::kThreshold: ret_selector.tau = arguments.number("tau", std::nullopt, kQuantum); break;
        case SelectorKind::kBlockTopK:
        case SelectorKind::kAdaptiveRandom: {
            ret_selector.ratio = arguments.number("ratio", std::nullopt, kFraction);
            const double block = arguments.number("block", kTileElements, kBlock);
            GRADSIEVE_TRY(arguments.finish());
            ret_selector.block = static_cast<int>(block);
            if (ret_selector.block == block && std::has_single_bit(static_cast<unsigned>(ret_selector.block)))
                return {};
            return bad_text("codec stage " + std::string(text.name) + ": block", number_text(block), kBlock.text,
                            "write one of those");
        }
        case SelectorKind::kGaussianK: ret_selector.ratio = arguments.number("ratio", std::nullopt, kFraction); break;
        case SelectorKind::kSidco: {
            ret_selector.ratio = arguments.number("ratio", std::nullopt, kFraction);
            const double stages = arguments.number("stages", 3, kStages);
            return read_whole(arguments, stages, "codec stage sidco: stages", kStages, ret_selector.stages);
        }
        case SelectorKind::kRandK:
            ret_selector.ratio = arguments.number("ratio", std::nullopt, kFraction);
            return read_selector_feedback(arguments, ret_selector);
        case SelectorKind::kBernoulli:
            ret_selector.probability = arguments.number("p", std::nullopt, kProbability);
            return read_selector_feedback(arguments, ret_selector);
        case SelectorKind::kBiasedRandom:
            ret_selector.probability = arguments.number("first", std::nullopt, kProbability);
            ret_selector.last_probability = arguments.number("last", std::nullopt, kProbability);
            break;
    }
    return arguments.finish();
}

std::string selector_text(const Selector& selector, Knobs knobs) {
    const auto shared = [&] {
        return "alpha=" + knob_text(selector.alpha, knobs) + ", zeta=" + knob_text(selector.zeta, knobs);
    };
    switch (selector.kind) {
        case SelectorKind::kAll: break;
        case SelectorKind::kVariance:
            return "variance(" + shared() + ", mode=" + std::string(kModeNames[selector.is_faithful ? 1 : 0]) + ")";
        case SelectorKind::kVarianceHybrid:
            return "variance_hybrid(tau=" + knob_text(selector.tau, knobs) + ", " + shared() + ")";
        case SelectorKind::kTopK:
            return "topk(ratio=" + knob_text(selector.ratio, knobs) +
                   ", scope=" + std::string(kTopKScopes[selector.scope == Scope::kModel ? 1 : 0]) +
                   ", gate=" + knob_text(selector.gate, knobs) + ")";
        case SelectorKind::kThreshold: return "threshold(tau=" + knob_text(selector.tau, knobs) + ")";
        case SelectorKind::kBlockTopK:
        case SelectorKind::kAdaptiveRandom:
            return std::string(name_of(selector)) + "(ratio=" + knob_text(selector.ratio, knobs) +
                   ", block=" + knob_text(selector.block, knobs) + ")";
        case SelectorKind::kGaussianK: return "gaussian_k(ratio=" + knob_text(selector.ratio, knobs) + ")";
        case SelectorKind::kSidco:
            return "sidco(ratio=" + knob_text(selector.ratio, knobs) + ", stages=" + knob_text(selector.stages, knobs) +
                   ")";
        case SelectorKind::kRandK:
            return "randk(ratio=" + knob_text(selector.ratio, knobs) + ", " + selector_feedback_text(selector);
        case SelectorKind::kBernoulli:
            return "bernoulli(p=" + knob_text(selector.probability, knobs) + ", " + selector_feedback_text(selector);
        case SelectorKind::kBiasedRandom:
            return "biased_random(first=" + knob_text(selector.probability, knobs) +
                   ", last=" + knob_text(selector.last_probability, knobs) + ")";
    }
    return "all";
}

Status check_keyed(const Pipeline& pipeline, std::string_view quantizer_name, std::string_view coder_name) {
    const Selector& selector = pipeline.selector;
    const Quantizer& quantizer = pipeline.quantizer;
    const std::string name(name_of(selector));
    if (!codes_zeros(quantizer.kind))
        return bad_text("quantizer after " + name, quantizer_name, "one with a code for zero",
                        "its positions follow from a key, so none of them can be left out: write f32, f16, bf16, "
                        "sign(scale=mean), natural or dither, for example");
    if (pipeline.index_coder != IndexCoderKind::kAuto)
        return bad_text("index coder after " + name, coder_name, "auto",
                        "a key is sent in place of indices: leave the index coder out");
    const bool is_unbiased = quantizer.kind == QuantizerKind::kF32 || is_random(quantizer);
    if (selector.feedback == Feedback::kNone && !is_unbiased)
        return bad_text("quantizer after " + name + "(feedback=none)", quantizer_name,
                        "f32 or one that rounds at random without bias",
                        "errors of this one have to be kept: leave feedback=none out");
    return {};
}

bool has_variance(const Pipeline& pipeline) noexcept {
    switch (pipeline.selector.kind) {
        case SelectorKind::kVariance:
        case SelectorKind::kVarianceHybrid: return true;
        case SelectorKind::kTopK: return pipeline.selector.gate > 0;
        case SelectorKind::kAll:
        case SelectorKind::kThreshold:
        case SelectorKind::kBlockTopK:
        case SelectorKind::kGaussianK:
        case SelectorKind::kSidco:
        case SelectorKind::kAdaptiveRandom:
        case SelectorKind::kRandK:
        case SelectorKind::kBernoulli:
        case SelectorKind::kBiasedRandom: break;
    }
    return false;
}

}  // namespace gradsieve::codec

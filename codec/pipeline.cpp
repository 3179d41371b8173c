#include "codec/pipeline.hpp"

#include "codec/exponential.hpp"
#include "codec/natural.hpp"
#include "codec/pipeline_front.hpp"
#include "codec/pipeline_stages.hpp"
#include "codec/pipeline_whole.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

namespace gradsieve::codec {
namespace {

// Numbers of quantizers have gaps.
constexpr std::string_view kSimilarityName = "similarity";
constexpr std::string_view kSignName = "sign";
constexpr std::string_view kTernaryName = "ternary";
constexpr std::string_view kRoundingName = "rounding";
constexpr std::array<std::string_view, 11> kQuantizerNames = {
    "f32",         "f16",   "bf16", "pow2", kSignName, "natural", "dither", kTernaryName, "exponential_dither",
    kRoundingName, "minmax"};
constexpr std::array<QuantizerKind, 11> kQuantizers = {QuantizerKind::kF32,
                                                       QuantizerKind::kF16,
                                                       QuantizerKind::kBf16,
                                                       QuantizerKind::kPow2,
                                                       QuantizerKind::kSign,
                                                       QuantizerKind::kNatural,
                                                       QuantizerKind::kDither,
                                                       QuantizerKind::kDither,
                                                       QuantizerKind::kExponentialDither,
                                                       QuantizerKind::kExponentialDither,
                                                       QuantizerKind::kMinMax};
constexpr std::array<std::string_view, 5> kIndexCoderNames = {"auto", "rice", "bitmap", "raw32", "elias_fano"};
constexpr std::array<std::string_view, 2> kRoundingNames = {"unbiased", "biased"};
constexpr std::array<std::string_view, 2> kScopeNames = {"tile", "tensor"};
constexpr std::array<std::string_view, 2> kNormNames = {"max", "l2"};
constexpr std::array<std::string_view, 2> kCombineNames = {"gather", "majority"};
constexpr std::array<std::string_view, 1> kEntropyCoderNames = {"entropy"};
constexpr std::array<std::string_view, 4> kRoleNames = {"selector", "quantizer", "index coder", "entropy coder"};

constexpr NumberRange kBits = {2, 8, false, "a whole number in [2, 8]"};
constexpr NumberRange kBucket = {64, kTileElements, false, "a power of two in [64, 4096]"};
constexpr NumberRange kLevels = {1, 127, false, "a whole number in [1, 127]"};
constexpr NumberRange kBase = {1.1, 16, false, "[1.1, 16]"};
constexpr double kUsualClip = 2.5;
/// No magnitude of a tile is above the root of its elements times their root mean square.
constexpr NumberRange kClip = {1, 64, false, "none or [1, 64]"};

std::string_view name_of(const Quantizer& quantizer) {
    if (quantizer.clip > 0) return kTernaryName;
    if (quantizer.is_fixed) return kRoundingName;
    if (quantizer.kind == QuantizerKind::kTwoMean || quantizer.kind == QuantizerKind::kVote) return kSignName;
    const auto found = std::ranges::find(kQuantizers, quantizer.kind);
    return kQuantizerNames[static_cast<std::size_t>(found - kQuantizers.begin())];
}

/// Role of a known name as an index into kRoleNames.
std::optional<std::size_t> role_of(std::string_view name) {
    if (position_of(selector_names(), name)) return 0;
    if (position_of(kQuantizerNames, name)) return 1;
    if (position_of(kIndexCoderNames, name)) return 2;
    if (position_of(kEntropyCoderNames, name)) return 3;
    return std::nullopt;
}

Status unknown_stage(std::string_view name, std::size_t first_role) {
    std::vector<std::string_view> candidates;
    if (first_role == 0) candidates.push_back(kSimilarityName);
    if (first_role == 0) candidates.insert(candidates.end(), front_names().begin(), front_names().end());
    if (first_role == 0) candidates.insert(candidates.end(), whole_names().begin(), whole_names().end());
    if (first_role <= 0) candidates.insert(candidates.end(), selector_names().begin(), selector_names().end());
    if (first_role == 1) candidates.insert(candidates.end(), kQuantizerNames.begin(), kQuantizerNames.end());
    if (first_role == 1 || first_role == 2)
        candidates.insert(candidates.end(), kIndexCoderNames.begin(), kIndexCoderNames.end());
    if (first_role >= 1) candidates.insert(candidates.end(), kEntropyCoderNames.begin(), kEntropyCoderNames.end());
    std::string allowed;
    for (const auto candidate : candidates) allowed.append(allowed.empty() ? "" : ", ").append(candidate);
    return bad_text("codec stage", name, allowed, "did you mean " + std::string(nearest_name(name, candidates)) + "?");
}

bool has_tau(const Selector& selector) {
    return selector.kind == SelectorKind::kVarianceHybrid || selector.kind == SelectorKind::kThreshold;
}

Status read_sign(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    const auto scale = arguments.take("scale");
    if (!scale || *scale == "mean") return arguments.finish();
    if (*scale == "two_mean") {
        ret_quantizer.kind = QuantizerKind::kTwoMean;
    } else if (*scale == "none") {
        ret_quantizer.kind = QuantizerKind::kVote;
        ret_quantizer.feedback = Feedback::kNone;
    } else if (*scale == "tau") {
        ret_quantizer.tau = selector.tau;
        if (!has_tau(selector))
            return bad_text("codec stage sign: scale", "tau", "mean or a number after a selector without a tau",
                            "write the number, e.g. sign(scale=0.01), or select with variance_hybrid(0.01) or "
                            "threshold(0.01)");
    } else {
        ret_quantizer.tau = arguments.parse_number("scale", *scale, kQuantum);
    }
    return arguments.finish();
}

Feedback read_feedback(ArgumentReader& arguments, const Selector& selector) {
    const auto default_feedback = drops_errors(selector) ? Feedback::kNone : Feedback::kScaled;
    return static_cast<Feedback>(
        arguments.word("feedback", static_cast<std::size_t>(default_feedback), kFeedbackNames));
}

Status read_dither(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    const double levels = arguments.number("levels", 7, kLevels);
    ret_quantizer.norm = static_cast<Norm>(arguments.word("norm", 0, kNormNames));
    ret_quantizer.feedback = read_feedback(arguments, selector);
    return read_whole(arguments, levels, "codec stage dither: levels", kLevels, ret_quantizer.levels);
}

/// dither(levels=1, norm=max), clipped.
Status read_ternary(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    ret_quantizer.levels = 1;
    const auto clip = arguments.take("clip");
    ret_quantizer.clip = !clip ? kUsualClip : *clip == "none" ? 0 : arguments.parse_number("clip", *clip, kClip);
    ret_quantizer.feedback = read_feedback(arguments, selector);
    return arguments.finish();
}

/// Where errors of a random rounding go; a biased one's are kept.
Status read_feedback_of_mode(std::string_view stage, ArgumentReader& arguments, const Selector& selector,
                             Quantizer& ret_quantizer) {
    if (!ret_quantizer.is_biased)
        ret_quantizer.feedback = read_feedback(arguments, selector);
    else if (const auto feedback = arguments.take("feedback"))
        return bad_text("codec stage " + std::string(stage) + ": feedback", *feedback,
                        "none of its own with mode=biased", "leave it out: a biased rounding's errors are kept");
    return {};
}

Status read_rounding(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    ret_quantizer.is_fixed = true;
    ret_quantizer.base = static_cast<float>(arguments.number("base", 2, kBase));
    ret_quantizer.levels = static_cast<int>(most_levels(static_cast<float>(ret_quantizer.base)));
    ret_quantizer.is_biased = arguments.word("mode", 0, kRoundingNames) == 1;
    GRADSIEVE_TRY(read_feedback_of_mode(kRoundingName, arguments, selector, ret_quantizer));
    return arguments.finish();
}

Status read_exponential(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    const double levels = arguments.number("levels", 7, kLevels);
    ret_quantizer.base = static_cast<float>(arguments.number("base", 2, kBase));
    ret_quantizer.is_biased = arguments.word("mode", 0, kRoundingNames) == 1;
    ret_quantizer.norm = static_cast<Norm>(arguments.word("norm", 0, kNormNames));
    GRADSIEVE_TRY(read_feedback_of_mode("exponential_dither", arguments, selector, ret_quantizer));
    GRADSIEVE_TRY(
        read_whole(arguments, levels, "codec stage exponential_dither: levels", kLevels, ret_quantizer.levels));
    if ((levels - 1) * std::log2(ret_quantizer.base) <= kMostOctaves) return {};
    return bad_text("codec stage exponential_dither: levels", number_text(levels),
                    "base^(levels - 1) up to 2^126, so that every level is a normal number",
                    "write fewer levels or a smaller base");
}

Status read_minmax(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    const double bits = arguments.number("bits", 4, kBits);
    const double bucket = arguments.number("bucket", 512, kBucket);
    ret_quantizer.feedback = read_feedback(arguments, selector);
    GRADSIEVE_TRY(read_whole(arguments, bits, "codec stage minmax: bits", kBits, ret_quantizer.bits));
    ret_quantizer.bucket = static_cast<int>(bucket);
    if (bucket == ret_quantizer.bucket && std::has_single_bit(static_cast<std::uint32_t>(bucket))) return {};
    return bad_text("codec stage minmax: bucket", number_text(bucket), kBucket.text, "write e.g. minmax(4, 512)");
}

Status read_quantizer(const StageText& text, const Selector& selector, Quantizer& ret_quantizer) {
    ArgumentReader arguments(text);
    ret_quantizer.kind = kQuantizers[*position_of(kQuantizerNames, text.name)];
    if (ret_quantizer.kind == QuantizerKind::kSign) return read_sign(arguments, selector, ret_quantizer);
    if (ret_quantizer.kind == QuantizerKind::kPow2) {
        const double bits = arguments.number("bits", 4, kBits);
        ret_quantizer.scope = static_cast<Scope>(arguments.word("scope", 0, kScopeNames));
        return read_whole(arguments, bits, "codec stage pow2: bits", kBits, ret_quantizer.bits);
    }
    if (text.name == kTernaryName) return read_ternary(arguments, selector, ret_quantizer);
    if (ret_quantizer.kind == QuantizerKind::kDither) return read_dither(arguments, selector, ret_quantizer);
    if (text.name == kRoundingName) return read_rounding(arguments, selector, ret_quantizer);
    if (ret_quantizer.kind == QuantizerKind::kExponentialDither)
        return read_exponential(arguments, selector, ret_quantizer);
    if (ret_quantizer.kind == QuantizerKind::kMinMax) return read_minmax(arguments, selector, ret_quantizer);
    if (ret_quantizer.kind == QuantizerKind::kNatural) ret_quantizer.feedback = read_feedback(arguments, selector);
    return arguments.finish();
}

/// Codes of one bit are as short as codes get, and fp numbers are not codes.
Status check_entropy(const Pipeline& pipeline) {
    const std::uint32_t bits = code_bits(pipeline.quantizer);
    if (!pipeline.has_entropy || (bits >= 2 && bits <= 8)) return {};
    return bad_text(
        "quantizer before entropy", name_of(pipeline.quantizer),
        "one with codes of 2 to 8 bits, as pow2, natural, dither, ternary, exponential_dither, rounding and minmax",
        "leave entropy out, or write e.g. natural | entropy");
}

/// Refuses what would not mean what it says.
Status check_combination(const Pipeline& pipeline) {
    const Selector& selector = pipeline.selector;
    const Quantizer& quantizer = pipeline.quantizer;
    const IndexCoderKind index_coder = pipeline.index_coder;
    GRADSIEVE_TRY(check_front(pipeline));
    GRADSIEVE_TRY(check_entropy(pipeline));
    if (selector.kind == SelectorKind::kVarianceHybrid &&
        (quantizer.kind != QuantizerKind::kSign || quantizer.tau != selector.tau))
        return bad_text("quantizer after variance_hybrid", canonical_text(pipeline, Knobs::kKeep), "sign(scale=tau)",
                        "the hybrid sends +-tau: write sign(scale=tau), or leave the quantizer out");
    if (quantizer.kind == QuantizerKind::kVote && selector.kind != SelectorKind::kAll)
        return bad_text("codec stage sign: scale", "none", "mean, two_mean or a number after a selector but all",
                        "a sign without a size leaves nothing that a residual could keep: select with all, or give "
                        "the scale");
    if (quantizer.kind == QuantizerKind::kMinMax && selector.kind != SelectorKind::kAll)
        return bad_text("quantizer after " + std::string(name_of(selector)), "minmax", "all | minmax",
                        "a range of a list's values has no level for zero that is kept: select with all, or quantize "
                        "with dither");
    const bool has_own_residual = selector.kind != SelectorKind::kAll && !drops_errors(selector);
    const std::string feedback_of_stage = "codec stage " + std::string(name_of(quantizer)) + ": feedback";
    if (is_random(quantizer) && has_own_residual && quantizer.feedback == Feedback::kNone)
        return bad_text(feedback_of_stage, "none", "scaled or unscaled after a selector that keeps a residual",
                        "leave it out, or select with all");
    if (is_random(quantizer) && selector.is_faithful && quantizer.feedback != Feedback::kNone)
        return bad_text(feedback_of_stage, kFeedbackNames[static_cast<std::size_t>(quantizer.feedback)],
                        "none after mode=faithful, which drops errors", "leave it out, or write mode=conserving");
    if (is_keyed(selector) && drops_errors(selector) && is_random(quantizer) && quantizer.feedback != Feedback::kNone)
        return bad_text(feedback_of_stage, kFeedbackNames[static_cast<std::size_t>(quantizer.feedback)],
                        "none after a selector with feedback=none", "leave it out, or give the selector feedback");
    if (is_keyed(selector))
        return check_keyed(pipeline, name_of(quantizer), kIndexCoderNames[static_cast<std::size_t>(index_coder)]);
    if (selector.kind == SelectorKind::kAdaptiveRandom && quantizer.kind == QuantizerKind::kPow2 &&
        quantizer.scope == Scope::kTensor)
        return bad_text("scope of pow2 after adaptive_random", "tensor", "tile",
                        "the tensor's largest element need not be among those drawn: leave the scope out");
    if (selector.kind == SelectorKind::kAll && quantizer.kind != QuantizerKind::kPow2 &&
        index_coder != IndexCoderKind::kAuto)
        return bad_text("index coder after all", kIndexCoderNames[static_cast<std::size_t>(index_coder)], "auto",
                        "every element is sent, so there are no indices: leave the index coder out");
    return {};
}

/// The shortest text that reads back as the same fp32 number.
std::string float_text(double value) {
    std::array<char, 40> buffer;
    const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), static_cast<float>(value));
    GRADSIEVE_CHECK(error == std::errc());
    return {buffer.data(), end};
}

std::string quantizer_text(const Pipeline& pipeline, Knobs knobs) {
    const Quantizer& quantizer = pipeline.quantizer;
    const std::string name(name_of(quantizer));
    if (quantizer.kind == QuantizerKind::kPow2)
        return name + "(bits=" + std::to_string(quantizer.bits) +
               ", scope=" + std::string(kScopeNames[static_cast<std::size_t>(quantizer.scope)]) + ")";
    const std::string feedback =
        "feedback=" + std::string(kFeedbackNames[static_cast<std::size_t>(quantizer.feedback)]) + ")";
    if (quantizer.clip > 0) return name + "(clip=" + knob_text(quantizer.clip, knobs) + ", " + feedback;
    if (quantizer.kind == QuantizerKind::kDither)
        return name + "(levels=" + std::to_string(quantizer.levels) +
               ", norm=" + std::string(kNormNames[static_cast<std::size_t>(quantizer.norm)]) + ", " + feedback;
    const std::string mode = "mode=" + std::string(kRoundingNames[quantizer.is_biased ? 1 : 0]);
    if (quantizer.is_fixed)
        return name + "(base=" + float_text(quantizer.base) + ", " + mode +
               (quantizer.is_biased ? ")" : ", " + feedback);
    if (quantizer.kind == QuantizerKind::kExponentialDither)
        return name + "(levels=" + std::to_string(quantizer.levels) + ", base=" + float_text(quantizer.base) +
               ", mode=" + std::string(kRoundingNames[quantizer.is_biased ? 1 : 0]) +
               ", norm=" + std::string(kNormNames[static_cast<std::size_t>(quantizer.norm)]) +
               (quantizer.is_biased ? ")" : ", " + feedback);
    if (quantizer.kind == QuantizerKind::kMinMax)
        return name + "(bits=" + std::to_string(quantizer.bits) + ", bucket=" + std::to_string(quantizer.bucket) +
               ", " + feedback;
    if (quantizer.kind == QuantizerKind::kNatural) return name + "(" + feedback;
    if (quantizer.kind == QuantizerKind::kTwoMean) return name + "(scale=two_mean)";
    if (quantizer.kind == QuantizerKind::kVote) return name + "(scale=none)";
    if (quantizer.kind != QuantizerKind::kSign) return name;
    if (quantizer.tau == 0) return name + "(scale=mean)";
    const bool is_selector_s = has_tau(pipeline.selector) && quantizer.tau == pipeline.selector.tau;
    return name + "(scale=" + (is_selector_s ? "tau" : knob_text(quantizer.tau, knobs)) + ")";
}

}  // namespace

Result<Pipeline> parse_pipeline(std::string_view text) {
    GRADSIEVE_ASSIGN(std::vector<StageText> stages, split_pipeline(text));
    Pipeline pipeline;
    if (stages.front().name == kSimilarityName) {
        GRADSIEVE_TRY(ArgumentReader(stages.front()).finish());
        pipeline.measures_similarity = true;
        stages.erase(stages.begin());
        if (stages.empty())
            return bad_text("codec", text, "a selector behind similarity", "write e.g. similarity | topk(0.01)");
    }
    for (std::size_t next_front = 0; is_front(stages.front().name);) {
        const std::string front_name(stages.front().name);
        const std::size_t position = front_position(front_name);
        if (position < next_front) break;
        GRADSIEVE_TRY(read_front(stages.front(), pipeline.front));
        next_front = position + 1;
        stages.erase(stages.begin());
        if (stages.empty())
            return bad_text("codec", text, "a selector behind " + front_name,
                            "write e.g. momentum(0.9) | topk(0.001) | f32 | auto");
    }
    if (is_whole(stages.front().name)) {
        GRADSIEVE_TRY(read_whole_codec(stages, pipeline.whole));
        GRADSIEVE_TRY(check_front(pipeline));
        return pipeline;
    }
    std::size_t next_role = 0;
    bool has_quantizer = false;
    for (const StageText& stage : stages) {
        if (is_whole(stage.name))
            return bad_text("codec stage", stage.name, "in place of selector, quantizer and index coder",
                            "remove it, or the other stages");
        if (is_front(stage.name) || stage.name == kSimilarityName)
            return bad_text("codec stage", stage.name,
                            "once, before the selector, in the order similarity, momentum, compensate, accumulate",
                            "move or remove it");
        const auto role = role_of(stage.name);
        if (!role && next_role <= 3) return unknown_stage(stage.name, next_role);
        if (!role || *role < next_role || (next_role == 0 && *role != 0))
            return bad_text(
                "codec stage", stage.name, "selector | quantizer | index coder | entropy, each once, in this order",
                role ? "its role is " + std::string(kRoleNames[*role]) + ": move or remove it" : "remove it");
        if (*role == 0) GRADSIEVE_TRY(read_selector(stage, pipeline.selector));
        if (*role == 1) GRADSIEVE_TRY(read_quantizer(stage, pipeline.selector, pipeline.quantizer));
        if (*role == 2) {
            pipeline.index_coder = static_cast<IndexCoderKind>(*position_of(kIndexCoderNames, stage.name));
            GRADSIEVE_TRY(ArgumentReader(stage).finish());
        }
        if (*role == 3) {
            pipeline.has_entropy = true;
            GRADSIEVE_TRY(ArgumentReader(stage).finish());
        }
        has_quantizer = has_quantizer || *role == 1;
        next_role = *role + 1;
    }
    if (has_tau(pipeline.selector) && !has_quantizer) {  // as the selectors were published
        pipeline.quantizer.kind = QuantizerKind::kSign;
        pipeline.quantizer.tau = pipeline.selector.tau;
    }
    GRADSIEVE_TRY(check_combination(pipeline));
    return pipeline;
}

std::string canonical_text(const Pipeline& pipeline, Knobs knobs) {
    const bool shows_similarity = pipeline.measures_similarity && knobs == Knobs::kKeep;
    const auto front =
        (shows_similarity ? std::string(kSimilarityName) + " | " : std::string()) + front_text(pipeline.front);
    if (has_phases(pipeline)) return front + whole_text(pipeline.whole);
    return front + selector_text(pipeline.selector, knobs) + " | " + quantizer_text(pipeline, knobs) + " | " +
           std::string(kIndexCoderNames[static_cast<std::size_t>(pipeline.index_coder)]) +
           (pipeline.has_entropy ? " | entropy" : "");
}

bool has_residual(const Pipeline& pipeline) noexcept {
    const Quantizer& quantizer = pipeline.quantizer;
    if (has_phases(pipeline)) return true;
    if (is_keyed(pipeline.selector)) return !drops_errors(pipeline.selector);
    const bool drops_rounding =
        quantizer.kind == QuantizerKind::kVote || (is_random(quantizer) && quantizer.feedback == Feedback::kNone);
    return pipeline.selector.kind != SelectorKind::kAll || (quantizer.kind != QuantizerKind::kF32 && !drops_rounding);
}

std::string_view combine_name(Combine combine) noexcept { return kCombineNames[static_cast<std::size_t>(combine)]; }

std::uint32_t code_bits(const Quantizer& quantizer) noexcept {
    switch (quantizer.kind) {
        case QuantizerKind::kF32:
        case QuantizerKind::kF16:
        case QuantizerKind::kBf16: return 0;
        case QuantizerKind::kPow2:
        case QuantizerKind::kMinMax: return static_cast<std::uint32_t>(quantizer.bits);
        case QuantizerKind::kSign:
        case QuantizerKind::kTwoMean:
        case QuantizerKind::kVote: return 1;
        case QuantizerKind::kNatural: return kNaturalCodeBits;
        case QuantizerKind::kDither:
        case QuantizerKind::kExponentialDither:
            return 1 + static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(quantizer.levels)));
    }
    return 0;
}

}  // namespace gradsieve::codec

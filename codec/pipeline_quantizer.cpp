// Quantizers as text: names, parameters, and what the entropy stage takes.
#include "codec/exponential.hpp"
#include "codec/natural.hpp"
#include "codec/pipeline_stages.hpp"

#include <bit>
#include <charconv>
#include <cmath>

namespace gradsieve::codec {
namespace {

// Numbers of quantizers have gaps.
constexpr std::string_view kSignName = "sign";
constexpr std::string_view kTernaryName = "ternary";
constexpr std::string_view kRoundingName = "rounding";
constexpr std::array<std::string_view, 12> kQuantizerNames = {
    "f32",         "f16",    "bf16",   "pow2", kSignName, "natural", "dither", kTernaryName, "exponential_dither",
    kRoundingName, "minmax", "integer"};
constexpr std::array<QuantizerKind, 12> kQuantizers = {QuantizerKind::kF32,
                                                       QuantizerKind::kF16,
                                                       QuantizerKind::kBf16,
                                                       QuantizerKind::kPow2,
                                                       QuantizerKind::kSign,
                                                       QuantizerKind::kNatural,
                                                       QuantizerKind::kDither,
                                                       QuantizerKind::kDither,
                                                       QuantizerKind::kExponentialDither,
                                                       QuantizerKind::kExponentialDither,
                                                       QuantizerKind::kMinMax,
                                                       QuantizerKind::kInteger};
constexpr std::array<std::string_view, 2> kRoundingNames = {"unbiased", "biased"};
constexpr std::array<std::string_view, 2> kScopeNames = {"tile", "tensor"};
constexpr std::array<std::string_view, 2> kNormNames = {"max", "l2"};
/// integer has no z that its values could be divided by.
constexpr std::array<std::string_view, 2> kUnscaledNames = {"unscaled", "none"};

constexpr NumberRange kBits = {2, 8, false, "a whole number in [2, 8]"};
constexpr NumberRange kBucket = {64, kTileElements, false, "a power of two in [64, 4096]"};
constexpr NumberRange kLevels = {1, 127, false, "a whole number in [1, 127]"};
constexpr NumberRange kBase = {1.1, 16, false, "[1.1, 16]"};
constexpr double kUsualClip = 2.5;
/// No magnitude of a tile is above the root of its elements times their root mean square.
constexpr NumberRange kClip = {1, 64, false, "none or [1, 64]"};

Status read_sign(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    const auto scale = arguments.take("scale");
    if (!scale || *scale == "mean") return arguments.finish();
    if (*scale == "two_mean") {
        ret_quantizer.kind = QuantizerKind::kTwoMean;
    } else if (*scale == "none") {
        ret_quantizer.kind = QuantizerKind::kVote;
        ret_quantizer.feedback = Feedback::kNone;
    } else if (*scale == "drive") {
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

Status read_integer(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    ret_quantizer.scale = arguments.number("scale", std::nullopt, kQuantum);
    ret_quantizer.is_biased = arguments.word("mode", 0, kRoundingNames) == 1;
    ret_quantizer.feedback = Feedback::kUnscaled;
    if (ret_quantizer.is_biased) {
        GRADSIEVE_TRY(read_feedback_of_mode("integer", arguments, selector, ret_quantizer));
    } else if (arguments.word("feedback", drops_errors(selector) ? 1 : 0, kUnscaledNames) == 1) {
        ret_quantizer.feedback = Feedback::kNone;
    }
    return arguments.finish();
}

std::string integer_text(const Quantizer& quantizer, Knobs knobs) {
    const std::string feedback(kFeedbackNames[static_cast<std::size_t>(quantizer.feedback)]);
    return "integer(scale=" + knob_text(quantizer.scale, knobs) +
           ", mode=" + std::string(kRoundingNames[quantizer.is_biased ? 1 : 0]) +
           (quantizer.is_biased ? ")" : ", feedback=" + feedback + ")");
}

/// The shortest text that reads back as the same fp32 number.
std::string float_text(double value) {
    std::array<char, 40> buffer;
    const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), static_cast<float>(value));
    GRADSIEVE_CHECK(error == std::errc());
    return {buffer.data(), end};
}

}  // namespace

std::span<const std::string_view> quantizer_names() noexcept { return kQuantizerNames; }

std::string_view name_of(const Quantizer& quantizer) noexcept {
    if (quantizer.clip > 0) return kTernaryName;
    if (quantizer.is_fixed) return kRoundingName;
    if (quantizer.kind == QuantizerKind::kTwoMean || quantizer.kind == QuantizerKind::kVote) return kSignName;
    const auto found = std::ranges::find(kQuantizers, quantizer.kind);
    return kQuantizerNames[static_cast<std::size_t>(found - kQuantizers.begin())];
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
    if (ret_quantizer.kind == QuantizerKind::kInteger) return read_integer(arguments, selector, ret_quantizer);
    if (ret_quantizer.kind == QuantizerKind::kMinMax) return read_minmax(arguments, selector, ret_quantizer);
    if (ret_quantizer.kind == QuantizerKind::kNatural) ret_quantizer.feedback = read_feedback(arguments, selector);
    return arguments.finish();
}

/// Codes of one bit are as short as codes get, and fp numbers are not codes. How long those of integer are, each chunk
/// says; where they are longer than 8 bits they stay plain.
Status check_entropy(const Pipeline& pipeline) {
    const std::uint32_t bits = code_bits(pipeline.quantizer);
    if (!pipeline.has_entropy || (bits >= 2 && bits <= 8) || pipeline.quantizer.kind == QuantizerKind::kInteger)
        return {};
    return bad_text("quantizer before entropy", name_of(pipeline.quantizer),
                    "one with codes of 2 to 8 bits, as pow2, natural, dither, ternary, exponential_dither, rounding, "
                    "minmax and integer",
                    "leave entropy out, or write e.g. natural | entropy");
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
    if (quantizer.kind == QuantizerKind::kInteger) return integer_text(quantizer, knobs);
    if (quantizer.kind == QuantizerKind::kMinMax)
        return name + "(bits=" + std::to_string(quantizer.bits) + ", bucket=" + std::to_string(quantizer.bucket) +
               ", " + feedback;
    if (quantizer.kind == QuantizerKind::kNatural) return name + "(" + feedback;
    if (quantizer.kind == QuantizerKind::kTwoMean) return name + "(scale=two_mean)";
    if (quantizer.kind == QuantizerKind::kVote) return name + "(scale=none)";
    if (quantizer.kind != QuantizerKind::kSign) return name;
    if (quantizer.tau == 0) return name + (has_drive_scale(quantizer) ? "(scale=drive)" : "(scale=mean)");
    const bool is_selector_s = has_tau(pipeline.selector) && quantizer.tau == pipeline.selector.tau;
    return name + "(scale=" + (is_selector_s ? "tau" : knob_text(quantizer.tau, knobs)) + ")";
}

std::uint32_t code_bits(const Quantizer& quantizer) noexcept {
    switch (quantizer.kind) {
        case QuantizerKind::kF32:
        case QuantizerKind::kF16:
        case QuantizerKind::kInteger:
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

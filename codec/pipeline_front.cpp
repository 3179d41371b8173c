#include "codec/pipeline_front.hpp"

#include "codec/pipeline_stages.hpp"

#include <algorithm>
#include <array>

namespace gradsieve::codec {
namespace {

constexpr std::string_view kMomentumName = "momentum";
constexpr std::string_view kCompensateName = "compensate";
constexpr std::string_view kAccumulateName = "accumulate";
constexpr std::string_view kDeltaName = "delta";
constexpr std::string_view kRotateName = "rotate";
constexpr std::string_view kWarmupName = "warmup";
/// In the order in which they may stand.
constexpr std::array<std::string_view, 6> kFrontNames = {kMomentumName, kCompensateName, kAccumulateName,
                                                         kWarmupName,   kDeltaName,      kRotateName};
constexpr std::array<std::string_view, 2> kNoYes = {"no", "yes"};
/// Above, u remembers longer than fp32 sums can tell.
constexpr NumberRange kMomentum = {1e-6, 0.9999, false, "[1e-6, 0.9999]"};
/// Room for loss scales and learning rates in the gradients.
constexpr NumberRange kClip = {1e-9, 1e9, false, "none or [1e-9, 1e9]"};
constexpr std::string_view kNoClip = "none";
/// Above 1 what is kept grows by itself.
constexpr NumberRange kBeta = {0, 1, false, "[0, 1]"};
constexpr NumberRange kGamma = {1e-6, 1e6, false, "[1e-6, 1e6]"};
constexpr NumberRange kLowPass = {1e-6, 1, false, "[1e-6, 1]"};
constexpr NumberRange kPeriod = {1, 100, false, "a whole number in [1, 100]"};
constexpr NumberRange kWarmupSteps = {1, 1e9, false, "a whole number in [1, 1e9]"};
constexpr NumberRange kWarmupFrom = {0, 1, true, "(0, 1]"};

Status read_momentum(const StageText& text, Front& inout_front) {
    ArgumentReader arguments(text);
    inout_front.kind = FrontKind::kMomentum;
    inout_front.factor = arguments.number("m", 0.9, kMomentum);
    inout_front.is_nesterov = arguments.word("nesterov", 0, kNoYes) == 1;
    const auto clip = arguments.take("clip");
    inout_front.clip = !clip || *clip == kNoClip ? 0 : arguments.parse_number("clip", *clip, kClip);
    return arguments.finish();
}

Status read_compensate(const StageText& text, Front& inout_front) {
    ArgumentReader arguments(text);
    inout_front.beta = arguments.number("beta", 1, kBeta);
    inout_front.gamma = arguments.number("gamma", 1, kGamma);
    inout_front.low_pass = arguments.number("lowpass", 1, kLowPass);
    return arguments.finish();
}

Status read_accumulate(const StageText& text, Front& inout_front) {
    ArgumentReader arguments(text);
    const double number = arguments.number("n", std::nullopt, kPeriod);
    return read_whole(arguments, number, "codec stage accumulate: n", kPeriod, inout_front.period);
}

Status read_warmup(const StageText& text, Front& inout_front) {
    ArgumentReader arguments(text);
    const double steps = arguments.number("steps", std::nullopt, kWarmupSteps);
    inout_front.warmup_from = arguments.number("from", inout_front.warmup_from, kWarmupFrom);
    return read_whole(arguments, steps, "codec stage warmup: steps", kWarmupSteps, inout_front.warmup_steps);
}

Status read_delta(const StageText& text, Front& inout_front) {
    inout_front.is_difference = true;
    return ArgumentReader(text).finish();
}

Status read_rotate(const StageText& text, Front& inout_front) {
    inout_front.is_rotated = true;
    return ArgumentReader(text).finish();
}

bool is_compensated(const Front& front) { return front.beta != 1 || front.gamma != 1 || front.low_pass != 1; }

Status check_compensation(const Pipeline& pipeline) {
    const Front& front = pipeline.front;
    const bool changes_beta = front.beta != 1;
    if ((changes_beta || front.low_pass != 1) && !has_residual(pipeline))
        return bad_text(changes_beta ? "codec stage compensate: beta" : "codec stage compensate: lowpass",
                        number_text(changes_beta ? front.beta : front.low_pass),
                        "1 before a codec that keeps no residual",
                        "leave it out: there is nothing that it could multiply");
    if (!is_compensated(front) || !has_variance(pipeline)) return {};
    return bad_text("codec stage before a variance test", kCompensateName, "none",
                    "v measures gradients as they are, and r would be of another scale: select with topk without a "
                    "gate, block_topk, threshold or all, or leave compensate out");
}

/// A ratio that falls to the selector's.
Status check_warmup(const Pipeline& pipeline) {
    if (!has_warmup(pipeline)) return {};
    if (!has_ratio(pipeline.selector) || has_phases(pipeline))
        return bad_text("codec behind warmup", canonical_text(pipeline, Knobs::kKeep),
                        "topk, block_topk, gaussian_k, sidco, randk or adaptive_random",
                        "there is no ratio that could fall to its own: leave warmup out");
    if (pipeline.front.warmup_from > pipeline.selector.ratio) return {};
    return bad_text("codec stage warmup: from", number_text(pipeline.front.warmup_from),
                    "more than the selector's ratio of " + number_text(pipeline.selector.ratio) + ", at most 1",
                    "write e.g. warmup(1000, from=0.25) | topk(0.001), or leave warmup out");
}

/// What follows the gradient by what was sent needs a codec that comes nearer to it each time, and one state of all
/// nodes.
Status check_delta(const Pipeline& pipeline) {
    if (!has_delta(pipeline)) return {};
    const Front& front = pipeline.front;
    if (is_compensated(front))
        return bad_text(
            "codec stage before delta", kCompensateName, "momentum, or none",
            "its factors are of a residual, and delta keeps what it has sent instead: leave compensate out");
    if (front.period > 1)
        return bad_text("codec stage before delta", kAccumulateName, "momentum, or none",
                        "all that was sent comes back in every step, also in those that send nothing: add gradients up "
                        "in the training program, or leave delta out");
    if (has_phases(pipeline))
        return bad_text("codec behind delta", has_factor(pipeline) ? "lowrank" : "sketch",
                        "a codec whose steps have one round of payloads",
                        "its second round is of sums, not of differences: leave delta out, or select with e.g. topk");
    if (has_variance(pipeline))
        return bad_text("codec stage before a variance test", kDeltaName, "none",
                        "v judges sums of gradients, and delta hands on differences: select with topk without a gate, "
                        "block_topk, threshold or all, or leave delta out");
    if (has_model_scope(pipeline))
        return bad_text("scope of topk behind delta", "model", "tensor",
                        "each tensor is followed by itself: leave the scope out");
    if (!has_residual(pipeline))
        return bad_text("codec stage before a codec that keeps no residual", kDeltaName, "none",
                        "what loses nothing leaves no difference, and what drops its errors does not come nearer: take "
                        "e.g. delta | topk(0.01) or delta | all | sign");
    const Quantizer& quantizer = pipeline.quantizer;
    if (is_random(quantizer) && quantizer.kind != QuantizerKind::kInteger && quantizer.feedback == Feedback::kUnscaled)
        return bad_text("codec stage " + std::string(name_of(quantizer)) + ": feedback", "unscaled",
                        "scaled behind delta",
                        "unscaled, an error may be larger than the difference, and what was sent would run away from "
                        "the gradient: leave it out");
    return {};
}

/// What a rotation is of use to: one scale for many elements, all of which are sent.
Status check_rotation(const Pipeline& pipeline) {
    const Quantizer& quantizer = pipeline.quantizer;
    if (!has_rotation(pipeline)) {
        if (!has_drive_scale(quantizer)) return {};
        return bad_text("codec stage sign: scale", "drive", "mean, two_mean, none or a number without rotate in front",
                        "its errors are zero in the mean over rotations: write rotate | all | sign(scale=drive), or "
                        "another scale");
    }
    if (has_phases(pipeline))
        return bad_text("codec after rotate", has_factor(pipeline) ? "lowrank" : "sketch", "all and a quantizer",
                        "a rotation leaves nothing that a few numbers could stand for: leave rotate out");
    if (pipeline.selector.kind != SelectorKind::kAll)
        return bad_text("selector after rotate", name_of(pipeline.selector), "all",
                        "a rotation leaves no element larger than others, so there is nothing to select by: write e.g. "
                        "rotate | all | sign, or leave rotate out");
    const std::string_view name = quantizer.kind == QuantizerKind::kF32       ? "f32"
                                  : quantizer.kind == QuantizerKind::kPow2    ? "pow2"
                                  : quantizer.kind == QuantizerKind::kInteger ? "integer"
                                  : quantizer.kind == QuantizerKind::kVote    ? "sign(scale=none)"
                                                                              : "";
    if (name.empty()) return {};
    return bad_text("quantizer after rotate", name,
                    "f16, bf16, sign, natural, dither, ternary, exponential_dither, rounding or minmax",
                    quantizer.kind == QuantizerKind::kF32
                        ? "f32 loses nothing that a rotation could spread: leave rotate out"
                        : "a rotation is taken back from numbers for all elements: leave rotate out, or quantize with "
                          "e.g. sign");
}

}  // namespace

std::span<const std::string_view> front_names() noexcept { return kFrontNames; }

bool is_front(std::string_view name) noexcept {
    return std::find(kFrontNames.begin(), kFrontNames.end(), name) != kFrontNames.end();
}

std::size_t front_position(std::string_view name) noexcept {
    return static_cast<std::size_t>(std::find(kFrontNames.begin(), kFrontNames.end(), name) - kFrontNames.begin());
}

Status read_front(const StageText& text, Front& inout_front) {
    if (text.name == kMomentumName) return read_momentum(text, inout_front);
    if (text.name == kRotateName) return read_rotate(text, inout_front);
    if (text.name == kDeltaName) return read_delta(text, inout_front);
    if (text.name == kWarmupName) return read_warmup(text, inout_front);
    return text.name == kCompensateName ? read_compensate(text, inout_front) : read_accumulate(text, inout_front);
}

std::string front_text(const Front& front) {
    std::string text;
    if (front.kind == FrontKind::kMomentum)
        text = std::string(kMomentumName) + "(m=" + number_text(front.factor) +
               ", nesterov=" + std::string(kNoYes[front.is_nesterov ? 1 : 0]) +
               ", clip=" + (front.clip > 0 ? number_text(front.clip) : std::string(kNoClip)) + ") | ";
    if (is_compensated(front))
        text += std::string(kCompensateName) + "(beta=" + number_text(front.beta) +
                ", gamma=" + number_text(front.gamma) + ", lowpass=" + number_text(front.low_pass) + ") | ";
    if (front.period > 1) text += std::string(kAccumulateName) + "(n=" + std::to_string(front.period) + ") | ";
    if (front.warmup_steps > 0)
        text += std::string(kWarmupName) + "(steps=" + std::to_string(front.warmup_steps) +
                ", from=" + number_text(front.warmup_from) + ") | ";
    if (front.is_difference) text += std::string(kDeltaName) + " | ";
    if (front.is_rotated) text += std::string(kRotateName) + " | ";
    return text;
}

Status check_front(const Pipeline& pipeline) {
    GRADSIEVE_TRY(check_delta(pipeline));
    GRADSIEVE_TRY(check_rotation(pipeline));
    GRADSIEVE_TRY(check_warmup(pipeline));
    GRADSIEVE_TRY(check_compensation(pipeline));
    if (pipeline.front.period > 1 && !has_residual(pipeline))
        return bad_text("codec stage before a codec that keeps no residual", kAccumulateName, "none",
                        "gradients would have nowhere to wait: take a quantizer that keeps its error, such as bf16, or "
                        "a selector that leaves elements out");
    if (!has_momentum(pipeline) || !has_variance(pipeline)) return {};
    return bad_text("codec stage before a variance test", kMomentumName, "none",
                    "v measures how much gradients vary, and what momentum adds up varies more: select with topk "
                    "without a gate, block_topk, threshold or all, or leave momentum to the optimizer");
}

}  // namespace gradsieve::codec

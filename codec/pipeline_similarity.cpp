#include "codec/pipeline_similarity.hpp"

#include "codec/pipeline_stages.hpp"

namespace gradsieve::codec {
namespace {

constexpr std::string_view kNever = "none";
/// A share of 1 is never taken away, and one of 0 is no contraction.
constexpr NumberRange kShare = {0.01, 0.999, false, "none or [0.01, 0.999]"};
constexpr NumberRange kMost = {1, 100, false, "a whole number in [1, 100]"};
constexpr std::string_view kSkipBefore = "codec stage similarity: skip before";

}  // namespace

Status read_similarity(const StageText& text, Pipeline& inout_pipeline) {
    inout_pipeline.measures_similarity = true;
    ArgumentReader arguments(text);
    const auto skip = arguments.take("skip");
    if (skip && *skip != kNever) inout_pipeline.reuse.share = arguments.parse_number("skip", *skip, kShare);
    const auto most = arguments.take("most");
    GRADSIEVE_TRY(arguments.finish());
    if (!most) return {};
    if (!has_reuse(inout_pipeline))
        return bad_text("codec stage similarity: most", *most, "none without skip",
                        "write similarity(skip=0.5, most=" + std::string(*most) + "), or leave it out");
    const double number = arguments.parse_number("most", *most, kMost);
    return read_whole(arguments, number, "codec stage similarity: most", kMost, inout_pipeline.reuse.most);
}

std::string similarity_text(const Pipeline& pipeline, Knobs knobs) {
    const bool keeps = knobs == Knobs::kKeep;
    const std::string name(kSimilarityName);
    if (has_reuse(pipeline))
        return name + "(skip=" + knob_text(pipeline.reuse.share, knobs) +
               ", most=" + knob_text(pipeline.reuse.most, knobs) + ") | ";
    return pipeline.measures_similarity && keeps ? name + " | " : std::string();
}

Status check_reuse(const Pipeline& pipeline) {
    if (!has_reuse(pipeline)) return {};
    if (has_phases(pipeline))
        return bad_text(kSkipBefore, has_factor(pipeline) ? "lowrank" : "sketch", "a codec of one round of payloads",
                        "its second round follows from the first: leave skip out, or write e.g. all | dither");
    if (has_delta(pipeline))
        return bad_text(kSkipBefore, "delta", "compensate, rotate or the selector",
                        "what was sent last has moved all nodes' average already, and the same again is no answer to "
                        "what is missing from it: leave skip or delta out");
    if (pipeline.selector.kind != SelectorKind::kAll)
        return bad_text(kSkipBefore, name_of(pipeline.selector), "all",
                        "what a selector sent has left the residual, so the same again is no answer to what waits: "
                        "leave skip out, or select with all");
    if (!has_residual(pipeline))
        return bad_text(kSkipBefore, name_of(pipeline.quantizer), "a quantizer that keeps its errors",
                        "the difference to what is sent again would be kept nowhere: leave skip out, or write e.g. "
                        "bf16, sign or dither without feedback=none");
    if (has_momentum(pipeline))
        return bad_text(kSkipBefore, "momentum", "compensate, rotate or the selector",
                        "what is to be sent is not the residual and the gradient alone, of which signatures tell: "
                        "leave skip or momentum out");
    if (pipeline.front.period > 1)
        return bad_text(kSkipBefore, "accumulate", "compensate, rotate or the selector",
                        "steps that send nothing have nothing to skip: leave skip or accumulate out");
    if (has_low_pass(pipeline))
        return bad_text(kSkipBefore, "compensate(lowpass=..)", "compensate without lowpass",
                        "a filter would not keep the difference: leave skip or lowpass out");
    return {};
}

}  // namespace gradsieve::codec

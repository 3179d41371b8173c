#include "codec/stages/delta.hpp"

#include "codec/stages/quantizer_list.hpp"
#include "codec/stages/stage_list.hpp"

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, Pipeline& inout_pipeline) {
    inout_pipeline.front.is_difference = true;
    return arguments.finish();
}

std::string text(const Pipeline& pipeline, Knobs /*knobs*/) { return has_delta(pipeline) ? "delta" : ""; }

/// What follows the gradient by what was sent needs a codec that comes nearer to it each time, and one state of all
/// nodes.
Status check(const Pipeline& pipeline) {
    if (!has_delta(pipeline)) return {};
    const Front& front = pipeline.front;
    if (is_compensated(front))
        return bad_text(
            "codec stage before delta", "compensate", "momentum, or none",
            "its factors are of a residual, and delta keeps what it has sent instead: leave compensate out");
    if (front.period > 1)
        return bad_text("codec stage before delta", "accumulate", "momentum, or none",
                        "all that was sent comes back in every step, also in those that send nothing: add gradients up "
                        "in the training program, or leave delta out");
    if (has_phases(pipeline))
        return bad_text("codec behind delta", name_of(pipeline.whole), "a codec whose steps have one round of payloads",
                        "its second round is of sums, not of differences: leave delta out, or select with e.g. topk");
    if (has_variance(pipeline))
        return bad_text("codec stage before a variance test", "delta", "none",
                        "v judges sums of gradients, and delta hands on differences: select with topk without a gate, "
                        "block_topk, threshold or all, or leave delta out");
    if (has_model_scope(pipeline))
        return bad_text("scope of topk behind delta", "model", "tensor",
                        "each tensor is followed by itself: leave the scope out");
    if (!has_residual(pipeline))
        return bad_text("codec stage before a codec that keeps no residual", "delta", "none",
                        "what loses nothing leaves no difference, and what drops its errors does not come nearer: take "
                        "e.g. delta | topk(0.01) or delta | all | sign");
    const Quantizer& quantizer = pipeline.quantizer;
    if (is_random(quantizer) && facts_of(quantizer.kind).has_bound && quantizer.feedback == Feedback::kUnscaled)
        return bad_text("codec stage " + std::string(name_of(quantizer)) + ": feedback", "unscaled",
                        "scaled behind delta",
                        "unscaled, an error may be larger than the difference, and what was sent would run away from "
                        "the gradient: leave it out");
    return {};
}

}  // namespace

const FrontStage Delta::kStage = {
    .row =
        StageRow{
            "delta", "front", "", "tensor",
            "h in the place of r, and H: 8 B per element and generation; 8 B that tell states of two runs apart",
            "sends what the gradient, or what momentum makes of it, differs from h, the sum of all that the node has "
            "sent; H, the average of all nodes' h, is what comes back, every element of it; stands before codecs that "
            "keep what they do not send, all nodes begin and go on together, and gradients have one scale",
            "Richtarik, Sokolov, Fatkhullin 2021, EF21: A New, Simpler, Theoretically Better, and Practically Faster "
            "Error Feedback, arXiv:2106.05203"},
    .read = read,
    .text = text,
    .check = check,
};

}  // namespace gradsieve::codec::stages

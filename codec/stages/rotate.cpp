#include "codec/stages/rotate.hpp"

#include "codec/stages/quantizer_list.hpp"
#include "codec/stages/stage_list.hpp"

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, Pipeline& inout_pipeline) {
    inout_pipeline.front.is_rotated = true;
    return arguments.finish();
}

std::string text(const Pipeline& pipeline, Knobs /*knobs*/) { return has_rotation(pipeline) ? "rotate" : ""; }

/// What a rotation is of use to: one scale for many elements, all of which are sent.
Status check(const Pipeline& pipeline) {
    const Quantizer& quantizer = pipeline.quantizer;
    if (!has_rotation(pipeline)) {
        if (!has_drive_scale(quantizer)) return {};
        return bad_text("codec stage sign: scale", "drive", "mean, two_mean, none or a number without rotate in front",
                        "its errors are zero in the mean over rotations: write rotate | all | sign(scale=drive), or "
                        "another scale");
    }
    if (has_phases(pipeline))
        return bad_text("codec after rotate", name_of(pipeline.whole), "all and a quantizer",
                        "a rotation leaves nothing that a few numbers could stand for: leave rotate out");
    if (!sends_all(pipeline.selector))
        return bad_text("selector after rotate", name_of(pipeline.selector), "all",
                        "a rotation leaves no element larger than others, so there is nothing to select by: write e.g. "
                        "rotate | all | sign, or leave rotate out");
    const QuantizerFacts& facts = facts_of(quantizer.kind);
    if (facts.may_be_rotated && !facts.is_exact) return {};
    return bad_text("quantizer after rotate", facts.is_vote ? "sign(scale=none)" : name_of(quantizer),
                    "f16, bf16, sign, natural, dither, ternary, exponential_dither, rounding or minmax",
                    facts.is_exact
                        ? "f32 loses nothing that a rotation could spread: leave rotate out"
                        : "a rotation is taken back from numbers for all elements: leave rotate out, or quantize with "
                          "e.g. sign");
}

}  // namespace

const FrontStage Rotate::kStage = {
    .row =
        StageRow{
            "rotate", "front", "", "tile", "-",
            "a randomized Hadamard transform of each tile before it is quantized, so that every element is spread over "
            "4,096 and one scale fits all; nodes rotate alike, and the sum of what they send is rotated back; stands "
            "before `all` and a quantizer that rounds",
            "Suresh, Yu, Kumar, McMahan 2017, Distributed Mean Estimation with Limited Communication; Vargaftik et al. "
            "2021, DRIVE: One-bit Distributed Mean Estimation"},
    .read = read,
    .text = text,
    .check = check,
};

}  // namespace gradsieve::codec::stages

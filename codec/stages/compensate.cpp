#include "codec/stages/compensate.hpp"

#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

/// Above 1 what is kept grows by itself.
constexpr NumberRange kBeta = {0, 1, false, "[0, 1]"};
constexpr NumberRange kGamma = {1e-6, 1e6, false, "[1e-6, 1e6]"};
constexpr NumberRange kLowPass = {1e-6, 1, false, "[1e-6, 1]"};

Status read(ArgumentReader& arguments, Pipeline& inout_pipeline) {
    Front& front = inout_pipeline.front;
    front.beta = arguments.number("beta", 1, kBeta);
    front.gamma = arguments.number("gamma", 1, kGamma);
    front.low_pass = arguments.number("lowpass", 1, kLowPass);
    return arguments.finish();
}

std::string text(const Pipeline& pipeline, Knobs /*knobs*/) {
    const Front& front = pipeline.front;
    if (!is_compensated(front)) return {};
    return "compensate(beta=" + number_text(front.beta) + ", gamma=" + number_text(front.gamma) +
           ", lowpass=" + number_text(front.low_pass) + ")";
}

Status check(const Pipeline& pipeline) {
    const Front& front = pipeline.front;
    const bool changes_beta = front.beta != 1;
    if ((changes_beta || front.low_pass != 1) && !has_residual(pipeline))
        return bad_text(changes_beta ? "codec stage compensate: beta" : "codec stage compensate: lowpass",
                        number_text(changes_beta ? front.beta : front.low_pass),
                        "1 before a codec that keeps no residual",
                        "leave it out: there is nothing that it could multiply");
    if (!is_compensated(front) || !has_variance(pipeline)) return {};
    return bad_text("codec stage before a variance test", "compensate", "none",
                    "v measures gradients as they are, and r would be of another scale: select with topk without a "
                    "gate, block_topk, threshold or all, or leave compensate out");
}

}  // namespace

const FrontStage Compensate::kStage = {
    .row =
        StageRow{
            "compensate", "front", "beta=1, gamma=1, lowpass=1", "element", "-",
            "adds gamma times the gradient, or what momentum makes of it, to beta times the residual; below beta = 1 "
            "what is not sent fades; below lowpass = 1 the residual is a low-pass of errors: 1 - lowpass of the one "
            "before and lowpass of what this step did not send",
            "Xu et al. 2021, GRACE: A Compressed Communication Framework for Distributed Machine Learning, residual "
            "memory; Chen et al. 2020, ScaleCom: Scalable Sparsified Gradient Compression for "
            "Communication-Efficient Distributed Training, low-pass filtered memory"},
    .read = read,
    .text = text,
    .check = check,
};

}  // namespace gradsieve::codec::stages

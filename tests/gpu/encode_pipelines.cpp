#include "encode_pipelines.hpp"

#include <fmt/format.h>

namespace gradsieve::gpu_check {

using codec::DataKind;
using codec::NamedPipeline;

codec::Pipeline parsed(const std::string& text) { return *codec::parse_pipeline(text); }

std::vector<NamedPipeline> all_pipelines() {
    auto pipelines = codec::every_pipeline();
    for (const char* text : {"variance(alpha=1.5) | pow2(bits=4) | rice",
                             "variance(alpha=0.5) | pow2(bits=4) | raw32",
                             "variance(alpha=0.2) | pow2(bits=3) | raw32",
                             "variance(alpha=0.5) | pow2(bits=2) | bitmap",
                             "variance(alpha=0.1) | pow2(bits=8) | auto",
                             "variance(alpha=2) | f32 | raw32",
                             "variance(alpha=0.3, mode=faithful) | sign | rice",
                             "variance_hybrid(tau=0.25, alpha=0.5) | sign(scale=tau) | bitmap",
                             "threshold(0.75) | sign(scale=tau) | rice",
                             "threshold(0.5) | sign(scale=mean) | bitmap",
                             "threshold(0.25) | sign(scale=0.125) | raw32",
                             "topk(0.001) | pow2(bits=4) | rice",
                             "topk(0.3, gate=0.5) | pow2(bits=5) | auto",
                             "topk(0.02) | sign | bitmap",
                             "variance(alpha=0.3) | sign(scale=two_mean) | rice",
                             "threshold(0.5) | sign(scale=two_mean) | bitmap",
                             "topk(1) | sign(scale=two_mean)",
                             "topk(0.01) | pow2(bits=4) | elias_fano",
                             "variance(alpha=0.1) | f32 | elias_fano",
                             "block_topk(0.6, block=64) | natural | elias_fano",
                             "all | pow2(bits=8) | elias_fano",
                             "block_topk(0.01) | pow2(bits=4) | rice",
                             "block_topk(0.3, block=64) | sign | bitmap",
                             "block_topk(0.001, block=512) | natural",
                             "block_topk(1, block=1024) | exponential_dither | raw32",
                             "gaussian_k(0.01) | pow2(bits=4)",
                             "gaussian_k(0.3) | f32 | bitmap",
                             "sidco(0.02, stages=1) | sign",
                             "sidco(0.01) | pow2(bits=4, scope=tensor) | rice",
                             "sidco(0.001, stages=8) | dither",
                             "randk(0.01)",
                             "randk(0.3, none)",
                             "randk(0.6) | sign",
                             "randk(0.02, none) | natural",
                             "randk(1) | exponential_dither",
                             "bernoulli(0.05) | dither(31, l2)",
                             "bernoulli(0.4, none) | ternary",
                             "biased_random(0.9, 0.001) | f16",
                             "adaptive_random(0.01) | pow2(bits=4) | rice",
                             "adaptive_random(0.3, block=64) | natural",
                             "adaptive_random(0.001, block=1024) | sign | bitmap",
                             "biased_random(0.001, 1) | sign(scale=0.01)",
                             "topk(0.5) | bf16 | raw32",
                             "momentum(0.9) | topk(0.01) | pow2 | rice",
                             "momentum(0.99, nesterov=yes) | threshold(1) | f32 | bitmap",
                             "momentum(0.9) | threshold(0.5) | natural",
                             "compensate(0.7, 0.3) | topk(0.01) | pow2 | rice",
                             "compensate(0.9, 0.3) | all | sign",
                             "compensate(gamma=0.1) | all | dither(feedback=none)",
                             "momentum(0.9, nesterov=yes) | compensate(0.5, 0.7) | threshold(0.5) | f32",
                             "accumulate(2) | topk(0.01) | pow2 | rice",
                             "accumulate(3) | all | sign",
                             "accumulate(2) | variance(alpha=0.5) | pow2(bits=4)",
                             "accumulate(2) | topk(0.3, gate=0.5) | natural",
                             "accumulate(2) | randk(0.3) | dither",
                             "momentum(0.9) | compensate(0.9, 0.5, 0.5) | accumulate(2) | block_topk(0.1) | f32",
                             "warmup(4, from=0.3) | topk(0.01) | pow2 | rice",
                             "momentum(0.9) | warmup(6) | block_topk(0.01, block=64) | sign",
                             "warmup(3, from=0.5) | sidco(0.02) | natural",
                             "warmup(2) | randk(0.02, none) | f32",
                             "warmup(6, from=1) | adaptive_random(0.05) | bf16",
                             "warmup(5) | delta | gaussian_k(0.03) | f32",
                             "compensate(lowpass=0.3) | topk(0.01) | pow2 | rice",
                             "compensate(0.9, 0.5, 0.25) | all | sign",
                             "compensate(lowpass=0.5) | all | pow2(bits=4)",
                             "compensate(lowpass=0.1) | randk(0.3) | dither",
                             "compensate(lowpass=0.7) | block_topk(0.1) | natural",
                             "momentum(0.9) | compensate(lowpass=0.6) | sidco(0.05) | bf16",
                             "momentum(0.5, nesterov=yes) | topk(0.3) | sign | raw32",
                             "momentum(0.9) | all | pow2(scope=tensor)",
                             "momentum(0.9) | all | dither(feedback=none)",
                             "momentum(0.9, nesterov=yes) | all | bf16",
                             "topk(0.5) | f16 | bitmap",
                             "threshold(1e-6) | f16",
                             "all | pow2(bits=3, scope=tensor)",
                             "all | dither(levels=1)",
                             "all | dither(levels=2)",
                             "all | dither(levels=4, norm=l2)",
                             "all | dither(levels=7, feedback=none)",
                             "all | dither(levels=127, feedback=none)",
                             "all | dither(levels=15, feedback=none)",
                             "all | dither(levels=31, norm=l2)",
                             "all | dither(levels=63, feedback=unscaled)",
                             "all | ternary(feedback=none)",
                             "variance(alpha=0.5) | ternary(clip=1.5, feedback=unscaled) | bitmap",
                             "all | exponential_dither(127, norm=l2)",
                             "all | exponential_dither(3, 4, biased)",
                             "topk(0.3) | exponential_dither(15, 1.5) | bitmap",
                             "variance(alpha=0.5) | exponential_dither(feedback=unscaled, norm=l2) | rice",
                             "all | minmax",
                             "all | minmax(2, 64, unscaled)",
                             "all | minmax(3, 1024)",
                             "all | minmax(8, 4096, none)",
                             "all | rounding",
                             "all | rounding(16, biased)",
                             "topk(0.3) | rounding(1.5, feedback=unscaled) | bitmap",
                             "all | sign(scale=0.125)",
                             "rotate | all | sign(scale=0.25)",
                             "momentum(0.9, clip=0.01) | topk(0.01) | pow2 | rice",
                             "momentum(0.5, yes, 3) | threshold(0.5) | natural",
                             "momentum(0.9, clip=1e-6) | all | f32",
                             "momentum(clip=1e6) | accumulate(2) | rotate | all | sign(scale=two_mean)",
                             "all | integer(1000, biased)",
                             "all | integer(1e-3)",
                             "threshold(0.5) | integer(1e7) | raw32",
                             "block_topk(0.3, block=64) | integer(3, biased) | bitmap",
                             "topk(1) | integer(50) | rice",
                             "momentum(0.9) | compensate(lowpass=0.3) | all | integer(20)",
                             "rotate | all | bf16",
                             "rotate | all | natural(feedback=unscaled)",
                             "rotate | all | dither(levels=15, norm=l2)",
                             "rotate | all | dither(levels=3, feedback=none)",
                             "rotate | all | ternary(clip=2)",
                             "rotate | all | exponential_dither(7, norm=l2)",
                             "rotate | all | rounding(2, biased)",
                             "rotate | all | minmax(4, 512, unscaled)",
                             "rotate | all | minmax(2, 4096, none) | entropy",
                             "topk(0.3) | natural | bitmap",
                             "variance(alpha=0.5) | natural(feedback=unscaled) | raw32",
                             "topk(0.02, gate=0.5) | natural | rice",
                             "topk(0.3) | dither(levels=3) | bitmap",
                             "variance(alpha=0.5) | dither(levels=127, norm=l2) | raw32",
                             "topk(0.02, gate=0.5) | dither(levels=7, feedback=unscaled) | rice",
                             "all | natural | entropy",
                             "all | ternary | entropy",
                             "topk(0.3) | pow2 | bitmap | entropy",
                             "randk(0.6) | dither(31, l2) | entropy"})
        pipelines.push_back({text, parsed(text)});
    return pipelines;
}

EncodeCase make_case(const NamedPipeline& named, ElementCount elements, std::size_t samples, DataKind kind) {
    EncodeCase made;
    made.input = codec::make_input(named.pipeline, elements, samples, DataKind::kZero, 1);
    made.kind = kind;
    made.input.batch_samples = samples == 4 ? 64 : 0;
    made.input.rescale = samples == 2 && !codec::has_delta(named.pipeline) ? 0.5F : 1.0F;
    made.input.node_count = 1 + static_cast<std::uint32_t>(samples % 3);
    made.state = codec::zero_state(made.input);
    made.name = fmt::format("{} of {} x {} {}", named.name, elements, samples, codec::data_kind_name(kind));
    return made;
}

}  // namespace gradsieve::gpu_check

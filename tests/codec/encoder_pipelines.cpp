// The pipelines that the suites of codecs run, in values.
#include "encoder_harness.hpp"

namespace gradsieve::codec {
namespace {

Pipeline make_pipeline(const Selector& selector, QuantizerKind kind, Scope scope) {
    Pipeline pipeline;
    pipeline.selector = selector;
    pipeline.quantizer.kind = kind;
    pipeline.quantizer.scope = scope;
    return pipeline;
}

}  // namespace

Pipeline all_pipeline(QuantizerKind quantizer) { return make_pipeline({}, quantizer, Scope::kTile); }
Pipeline variance_pipeline(double alpha, QuantizerKind quantizer, Scope scope) {
    Selector selector;
    selector.kind = SelectorKind::kVariance;
    selector.alpha = alpha;
    return make_pipeline(selector, quantizer, scope);
}
Pipeline faithful_pipeline(double alpha, QuantizerKind quantizer, Scope scope) {
    Pipeline pipeline = variance_pipeline(alpha, quantizer, scope);
    pipeline.selector.is_faithful = true;
    return pipeline;
}
Pipeline hybrid_pipeline(double alpha, double tau) {
    Pipeline pipeline = variance_pipeline(alpha, QuantizerKind::kSign);
    pipeline.selector.kind = SelectorKind::kVarianceHybrid;
    pipeline.selector.tau = tau;
    pipeline.quantizer.tau = tau;
    return pipeline;
}
Pipeline threshold_pipeline(double tau, QuantizerKind quantizer, Scope scope) {
    Selector selector;
    selector.kind = SelectorKind::kThreshold;
    selector.tau = tau;
    Pipeline pipeline = make_pipeline(selector, quantizer, scope);
    if (quantizer == QuantizerKind::kSign) pipeline.quantizer.tau = tau;
    return pipeline;
}
Pipeline top_k_pipeline(double ratio, double gate, QuantizerKind quantizer, Scope scope) {
    Selector selector;
    selector.kind = SelectorKind::kTopK;
    selector.ratio = ratio;
    selector.gate = gate;
    return make_pipeline(selector, quantizer, scope);
}

Pipeline dither_pipeline(const Selector& selector, int levels, Norm norm, Feedback feedback) {
    Pipeline pipeline = make_pipeline(selector, QuantizerKind::kDither, Scope::kTile);
    pipeline.quantizer.levels = levels;
    pipeline.quantizer.norm = norm;
    pipeline.quantizer.feedback = feedback;
    return pipeline;
}

Pipeline natural_pipeline(const Selector& selector, Feedback feedback) {
    Pipeline pipeline = make_pipeline(selector, QuantizerKind::kNatural, Scope::kTile);
    pipeline.quantizer.feedback = feedback;
    return pipeline;
}

std::vector<NamedPipeline> every_pipeline() {
    using enum QuantizerKind;
    return {{"all|f32", all_pipeline(kF32)},
            {"all|f16", all_pipeline(kF16)},
            {"all|bf16", all_pipeline(kBf16)},
            {"all|pow2", all_pipeline(kPow2)},
            {"all|sign", all_pipeline(kSign)},
            {"all|sign(two_mean)", *parse_pipeline("all | sign(scale=two_mean)")},
            {"topk|sign(two_mean)", *parse_pipeline("topk(0.1) | sign(scale=two_mean)")},
            {"all|sign(none)", *parse_pipeline("all | sign(scale=none)")},
            {"all|dither", dither_pipeline({}, 7)},
            {"all|dither(127, unscaled)", dither_pipeline({}, 127, Norm::kMax, Feedback::kUnscaled)},
            {"all|dither(3, l2)", dither_pipeline({}, 3, Norm::kL2)},
            {"all|dither(7, none)", dither_pipeline({}, 7, Norm::kMax, Feedback::kNone)},
            {"all|dither(1, l2, none)", dither_pipeline({}, 1, Norm::kL2, Feedback::kNone)},
            {"all|ternary", *parse_pipeline("all | ternary")},
            {"all|exponential", *parse_pipeline("all | exponential_dither")},
            {"all|exponential(none)", *parse_pipeline("all | exponential_dither(15, 1.5, norm=l2, feedback=none)")},
            {"topk|exponential(biased)", *parse_pipeline("topk(0.2) | exponential_dither(mode=biased)")},
            {"block_topk|f32", *parse_pipeline("block_topk(0.1)")},
            {"block_topk(64)|pow2", *parse_pipeline("block_topk(0.05, block=64) | pow2(scope=tensor)")},
            {"gaussian_k|f32", *parse_pipeline("gaussian_k(0.05)")},
            {"gaussian_k|pow2(tensor)", *parse_pipeline("gaussian_k(0.01) | pow2(scope=tensor)")},
            {"sidco|sign", *parse_pipeline("sidco(0.02) | sign")},
            {"sidco(1)|natural", *parse_pipeline("sidco(0.1, stages=1) | natural")},
            {"sidco(5)|dither", *parse_pipeline("sidco(0.001, stages=5) | dither")},
            {"momentum|topk|f32", *parse_pipeline("momentum(0.9) | topk(0.05)")},
            {"momentum|threshold|pow2", *parse_pipeline("momentum(0.5, nesterov=yes) | threshold(0.5) | pow2")},
            {"momentum|block_topk|dither", *parse_pipeline("momentum(nesterov=yes) | block_topk(0.1) | dither")},
            {"momentum|all|sign", *parse_pipeline("momentum(0.9, nesterov=yes) | all | sign")},
            {"momentum|all|f32", *parse_pipeline("momentum(0.5) | all")},
            {"momentum(clip)|topk|f32", *parse_pipeline("momentum(0.9, clip=10) | topk(0.05)")},
            {"momentum(clip)|all|sign", *parse_pipeline("momentum(0.5, yes, 0.25) | all | sign")},
            {"momentum(clip)|compensate|threshold",
             *parse_pipeline("momentum(clip=30) | compensate(0.9, 0.5) | threshold(0.1) | natural")},
            {"compensate|topk|f32", *parse_pipeline("compensate(0.7) | topk(0.05)")},
            {"compensate|all|sign", *parse_pipeline("compensate(0.9, 0.3) | all | sign")},
            {"compensate|randk|natural", *parse_pipeline("compensate(0, 0.8) | randk(0.2) | natural")},
            {"compensate|all|dither(none)", *parse_pipeline("compensate(gamma=0.1) | all | dither(feedback=none)")},
            {"compensate(lowpass)|topk|f32", *parse_pipeline("compensate(lowpass=0.3) | topk(0.05)")},
            {"compensate(lowpass)|all|f16", *parse_pipeline("compensate(0.9, 0.5, 0.25) | all | f16")},
            {"compensate(lowpass)|bernoulli", *parse_pipeline("compensate(lowpass=0.1) | bernoulli(0.3) | dither")},
            {"momentum|compensate|block_topk",
             *parse_pipeline("momentum(nesterov=yes) | compensate(0.5, 0.7) | block_topk(0.1) | pow2")},
            {"momentum|compensate|threshold",
             *parse_pipeline("momentum | compensate(lowpass=0.6) | threshold(0.5) | natural")},
            {"momentum|compensate|all", *parse_pipeline("momentum(0.5) | compensate(gamma=0.3) | all | f32")},
            {"accumulate|topk|pow2", *parse_pipeline("accumulate(3) | topk(0.1) | pow2")},
            {"accumulate|all|f16", *parse_pipeline("accumulate(2) | all | f16")},
            {"accumulate|randk|natural", *parse_pipeline("accumulate(2) | randk(0.3) | natural")},
            {"accumulate|variance|f32", *parse_pipeline("accumulate(2) | variance(0.5)")},
            {"accumulate|topk(gate)|sign", *parse_pipeline("accumulate(2) | topk(0.1, gate=0.5) | sign")},
            {"momentum|compensate|accumulate|all",
             *parse_pipeline("momentum(0.5, yes) | compensate(0.9, 0.5, 0.4) | accumulate(2) | all | sign")},
            {"warmup|topk|pow2", *parse_pipeline("warmup(3, from=0.4) | topk(0.02) | pow2")},
            {"warmup|randk(none)|f32", *parse_pipeline("warmup(9) | randk(0.01, none)")},
            {"momentum|accumulate|warmup|block_topk",
             *parse_pipeline("momentum(0.5) | accumulate(2) | warmup(8, 1) | block_topk(0.05) | natural")},
            {"delta|topk|f32", *parse_pipeline("delta | topk(0.05)")},
            {"delta|all|sign", *parse_pipeline("delta | all | sign")},
            {"momentum|delta|block_topk|pow2", *parse_pipeline("momentum(0.8) | delta | block_topk(0.1) | pow2")},
            {"delta|rotate|all|dither", *parse_pipeline("delta | rotate | all | dither")},
            {"rotate|all|sign", *parse_pipeline("rotate | all | sign")},
            {"rotate|all|sign(two_mean)", *parse_pipeline("rotate | all | sign(scale=two_mean)")},
            {"rotate|all|sign(drive)", *parse_pipeline("rotate | all | sign(scale=drive)")},
            {"rotate|all|dither", *parse_pipeline("rotate | all | dither")},
            {"rotate|all|natural(none)|entropy", *parse_pipeline("rotate | all | natural(none) | entropy")},
            {"rotate|all|minmax(2, 64)", *parse_pipeline("rotate | all | minmax(2, 64)")},
            {"momentum|compensate|accumulate|rotate|all|f16",
             *parse_pipeline("momentum(0.5) | compensate(0.9, 0.5, 0.4) | accumulate(2) | rotate | all | f16")},
            {"randk|f32", *parse_pipeline("randk(0.1)")},
            {"randk(none)|f32", *parse_pipeline("randk(0.03, none)")},
            {"randk(0.7)|sign", *parse_pipeline("randk(0.7) | sign")},
            {"randk(1)|natural", *parse_pipeline("randk(1) | natural(unscaled)")},
            {"randk(none)|dither", *parse_pipeline("randk(0.4, none) | dither(3, l2)")},
            {"bernoulli|f16", *parse_pipeline("bernoulli(0.2) | f16")},
            {"bernoulli(none)|exponential", *parse_pipeline("bernoulli(0.9, none) | exponential_dither")},
            {"bernoulli(none)|f32", *parse_pipeline("bernoulli(1e-4, none)")},
            {"adaptive_random|f32", *parse_pipeline("adaptive_random(0.05)")},
            {"adaptive_random(64)|pow2", *parse_pipeline("adaptive_random(0.3, 64) | pow2(4)")},
            {"adaptive_random|sign", *parse_pipeline("adaptive_random(1e-4, block=512) | sign")},
            {"biased_random|bf16", *parse_pipeline("biased_random(0.9, 0.01) | bf16")},
            {"biased_random|ternary", *parse_pipeline("biased_random(0.1, 1) | ternary")},
            {"all|minmax", *parse_pipeline("all | minmax")},
            {"all|minmax(8, 64, unscaled)", *parse_pipeline("all | minmax(8, 64, unscaled)")},
            {"all|minmax(2, 4096, none)", *parse_pipeline("all | minmax(2, 4096, none)")},
            {"all|integer(20)", *parse_pipeline("all | integer(20)")},
            {"all|integer(1e6)", *parse_pipeline("all | integer(1e6)")},
            {"all|integer(8, none)", *parse_pipeline("all | integer(8, unbiased, none)")},
            {"all|integer(0.5, biased)", *parse_pipeline("all | integer(0.5, biased)")},
            {"all|integer|entropy", *parse_pipeline("all | integer(5) | entropy")},
            {"topk|integer(4)", *parse_pipeline("topk(0.2) | integer(4)")},
            {"variance|integer(biased)", *parse_pipeline("variance(0.5) | integer(30, biased)")},
            {"randk(none)|integer", *parse_pipeline("randk(0.4, none) | integer(16)")},
            {"bernoulli|integer", *parse_pipeline("bernoulli(0.3) | integer(100)")},
            {"all|rounding(1.1)", *parse_pipeline("all | rounding(1.1)")},
            {"all|natural|entropy", *parse_pipeline("all | natural | entropy")},
            {"topk|pow2|entropy", *parse_pipeline("topk(0.2) | pow2 | entropy")},
            {"topk|ternary(1)", *parse_pipeline("topk(0.2) | ternary(clip=1)")},
            {"all|natural", natural_pipeline({})},
            {"all|natural(unscaled)", natural_pipeline({}, Feedback::kUnscaled)},
            {"all|natural(none)", natural_pipeline({}, Feedback::kNone)},
            {"variance|natural", natural_pipeline(variance_pipeline(0.5, kF32).selector)},
            {"faithful|natural", natural_pipeline(faithful_pipeline(1.0, kF32).selector, Feedback::kNone)},
            {"threshold|natural", natural_pipeline(threshold_pipeline(0.5, kF32).selector, Feedback::kUnscaled)},
            {"topk|natural", natural_pipeline(top_k_pipeline(0.1, 0, kF32).selector)},
            {"variance|f32", variance_pipeline(1.5, kF32)},
            {"variance|f16", variance_pipeline(1.0, kF16)},
            {"variance|bf16", variance_pipeline(1.0, kBf16)},
            {"variance|pow2", variance_pipeline(0.5, kPow2)},
            {"variance|pow2(tensor)", variance_pipeline(0.5, kPow2, Scope::kTensor)},
            {"variance|dither", dither_pipeline(variance_pipeline(0.5, kF32).selector, 7)},
            {"faithful|dither", dither_pipeline(faithful_pipeline(0.5, kF32).selector, 7, Norm::kMax, Feedback::kNone)},
            {"variance|sign", variance_pipeline(1.0, kSign)},
            {"variance(0)|f32", variance_pipeline(0.0, kF32)},
            {"faithful|f32", faithful_pipeline(1.0, kF32)},
            {"faithful|pow2(tensor)", faithful_pipeline(0.5, kPow2, Scope::kTensor)},
            {"variance_hybrid|sign(tau)", hybrid_pipeline(1.0, 0.5)},
            {"threshold|sign(tau)", threshold_pipeline(0.5, kSign)},
            {"threshold|f32", threshold_pipeline(1.0, kF32)},
            {"threshold|bf16", threshold_pipeline(0.25, kBf16)},
            {"threshold|pow2", threshold_pipeline(0.5, kPow2)},
            {"threshold|pow2(tensor)", threshold_pipeline(0.25, kPow2, Scope::kTensor)},
            {"threshold|dither", dither_pipeline(threshold_pipeline(0.5, kF32).selector, 7)},
            {"topk|f32", top_k_pipeline(0.01, 0, kF32)},
            {"topk|f16", top_k_pipeline(0.1, 0, kF16)},
            {"topk|bf16", top_k_pipeline(0.1, 0, kBf16)},
            {"topk|pow2(tensor)", top_k_pipeline(0.1, 0, kPow2, Scope::kTensor)},
            {"topk|dither(31, l2)", dither_pipeline(top_k_pipeline(0.1, 0, kF32).selector, 31, Norm::kL2)},
            {"topk(1)|dither(1)", dither_pipeline(top_k_pipeline(1.0, 0, kF32).selector, 1)},
            {"topk(1)|pow2", top_k_pipeline(1.0, 0, kPow2)},
            {"topk(gate)|f32", top_k_pipeline(0.1, 1.0, kF32)},
            {"topk(gate)|sign", top_k_pipeline(0.03, 0.5, kSign)}};
}

}  // namespace gradsieve::codec

#include "convergence_rows.hpp"

#include <vector>

namespace gradsieve::test {

std::span<const ConvergenceRow> convergence_rows() {
    static const std::vector<ConvergenceRow> kRows = {
        {"all | f32", 0},
        {"similarity | all | f32", 0},
        {"momentum(0.9) | all | f32", 0.01, 0.1},
        {"momentum(0.9) | topk(0.1) | f32", 0.01, 0.1},
        {"compensate(beta=0.9) | topk(0.1) | f32"},
        {"compensate(lowpass=0.5) | all | sign"},
        {"accumulate(4) | all | f16"},
        {"variance(1.5) | f32"},
        {"variance(1, mode=faithful) | f32"},
        {"variance_hybrid(0.02)"},
        {"topk(0.1) | f32"},
        {"topk(0.01) | f32"},
        {"topk(0.1, scope=model) | f32"},
        {"topk(0.1, gate=0.5) | f32"},
        {"threshold(0.02)"},
        {"block_topk(0.1) | f32"},
        {"gaussian_k(0.1) | f32"},
        {"sidco(0.1) | f32"},
        {"randk(0.1) | f32"},
        {"randk(0.1, none) | f32"},
        {"bernoulli(0.1) | f32"},
        {"biased_random(0.3, 0.1) | f32"},
        {"adaptive_random(0.1) | f32"},
        {"all | f16"},
        {"all | bf16"},
        {"all | pow2(bits=4)"},
        {"all | sign"},
        {"all | sign(scale=two_mean)"},
        {"all | sign(scale=0.01)"},
        {"all | sign(scale=none)", 0.01, 0.02},
        {"all | natural"},
        {"all | natural(feedback=none)"},
        {"all | dither(levels=7)"},
        {"all | dither(levels=7, feedback=none)"},
        {"all | dither(levels=1, norm=l2, feedback=none)"},
        {"all | ternary"},
        {"all | ternary(feedback=none)"},
        {"all | exponential_dither(levels=7)"},
        {"all | exponential_dither(levels=7, mode=biased)"},
        {"all | rounding(base=2)"},
        {"all | minmax(bits=4)"},
        {"all | minmax(bits=2, feedback=none)"},
        {"all | integer(scale=1e4)"},
        {"all | integer(scale=10)"},
        {"all | integer(scale=10, mode=biased)"},
        {"all | integer(scale=100, feedback=none)"},
        {"all | integer(scale=1, feedback=none)"},
        {"topk(0.1) | integer(scale=100)"},
        {"topk(0.1) | pow2(bits=4) | auto"},
        {"topk(0.1) | pow2(bits=4) | rice"},
        {"topk(0.1) | pow2(bits=4) | bitmap"},
        {"topk(0.1) | pow2(bits=4) | raw32"},
        {"topk(0.1) | pow2(bits=4) | elias_fano"},
        {"topk(0.1) | pow2(bits=4) | auto | entropy"},
    };
    return kRows;
}

}  // namespace gradsieve::test

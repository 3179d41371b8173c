#include "convergence_rows.hpp"

#include <limits>
#include <vector>

namespace gradsieve::test {

static constexpr double kNever = std::numeric_limits<double>::infinity();

std::span<const ConvergenceRow> convergence_rows() {
    static const std::vector<ConvergenceRow> kRows = {
        {"all | f32", 0},
        {"similarity | all | f32", 0},
        {"momentum(0.9) | all | f32", 0.01, 0.1},
        {"momentum(0.9) | topk(0.1) | f32", 0.01, 0.4},
        {"compensate(lowpass=0.5) | all | sign"},
        {"compensate(beta=0.9) | topk(0.1) | f32", 0.05, 1, "what waits fades, and some of it is never sent"},
        {"compensate(beta=0.5) | topk(0.1) | f32", kNever, 1, "half of what waits is forgotten at every step", 0.05},
        {"accumulate(2) | all | f16"},
        {"accumulate(4) | topk(0.1) | f32"},
        {"variance(1.5) | f32"},
        {"variance(1, mode=faithful) | f32"},
        {"variance_hybrid(0.02)"},
        {"topk(0.1) | f32"},
        {"topk(0.01) | f32"},
        {"topk(0.001) | f32", kNever, 1, "an element waits longer than the run has steps", 0.05},
        {"topk(0.1, scope=model) | f32"},
        {"topk(0.1, gate=0.5) | f32"},
        {"threshold(0.05)"},
        {"block_topk(0.1) | f32"},
        {"gaussian_k(0.1) | f32"},
        {"sidco(0.1) | f32"},
        {"randk(0.1) | f32"},
        {"randk(0.1, none) | f32", 0.05, 1, "noise of ten times the gradient's energy, which no residual takes back"},
        {"randk(0.01, none) | f32", kNever, 1, "noise of a hundred times the gradient's energy", 0.05},
        {"bernoulli(0.1) | f32"},
        {"biased_random(0.3, 0.1) | f32"},
        {"adaptive_random(0.1) | f32"},
        {"all | f16"},
        {"all | bf16"},
        {"all | pow2(bits=4)"},
        {"all | sign"},
        {"all | sign(scale=two_mean)"},
        {"all | sign(scale=0.05)"},
        {"all | sign(scale=0.003)", kNever, 1, "no element moves by more than 0.003 rates a step; the rest waits",
         0.05},
        {"all | sign(scale=none)", 0.01, 0.05},
        {"all | natural"},
        {"all | natural(feedback=none)"},
        {"all | dither(levels=7)"},
        {"all | dither(levels=7, feedback=none)"},
        {"all | dither(levels=1, norm=l2, feedback=none)", 0.05, 1, "noise of many times the gradient's energy"},
        {"all | dither(levels=1, norm=l2, feedback=unscaled)", kNever, 1,
         "z is far above 2, so that unscaled errors grow when they are fed back", 10},
        {"all | ternary"},
        {"all | ternary(feedback=none)"},
        {"all | exponential_dither(levels=7)"},
        {"all | exponential_dither(levels=7, mode=biased)"},
        {"all | rounding(base=2)"},
        {"all | minmax(bits=4)"},
        {"all | minmax(bits=2, feedback=none)"},
        {"all | integer(scale=1e4)"},
        {"all | integer(scale=4)"},
        {"all | integer(scale=10, mode=biased)"},
        {"all | integer(scale=100, feedback=none)"},
        {"all | integer(scale=1, feedback=none)", 0.05, 1, "units are far larger than elements, and nothing is kept"},
        {"all | integer(scale=0.1)", kNever, 1, "a unit of 10 takes longer to come in than the run has steps", 0.05},
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

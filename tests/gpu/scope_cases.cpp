#include "scope_cases.hpp"

namespace gradsieve::gpu_check {

using enum codec::cuda::ElementType;
using enum codec::DataKind;

std::vector<ScopeCase> scope_cases(bool is_small) {
    constexpr ElementCount kGroup = 16 * kTileElements;
    std::vector<ScopeCase> cases = {
        {"topk(0.01, scope=model) | f32", {{1}, {0}, {31}, {kTileElements}, {kTileElements + 1}, {70'001}}},
        {"topk(0.02, scope=model) | pow2(bits=4) | auto", {{kGroup}, {kGroup + 1}, {4097}}, {kF32, kBf16}},
        {"topk(0.05, scope=model) | pow2(bits=4, scope=tensor) | rice", {{9001}, {20'000, kHeavyTailed}}, {kF16}},
        {"topk(0.03, scope=model, gate=1) | pow2(bits=4) | auto", {{70'001}, {5000, kHeavyTailed}}, {kF32, kF32}},
        {"topk(0.03, scope=model, gate=0.5) | sign | bitmap", {{5000}, {4099}}, {kF32, kF16, kF32, kF32}},
        {"topk(0.03, scope=model, gate=2) | f32", {{9000}, {301}}, {kF32, kF32}, true},
        // Ties: across tensors, groups and tiles; all of one kind; and none sent of the later tensors.
        {"topk(0.5, scope=model) | bf16", {{5000, kConstant}, {70'000, kConstant}, {300, kConstant}}},
        {"topk(0.6, scope=model) | sign | auto", {{130'000, kConstant}, {7000, kSignedZeros}}, {kF32, kF32}},
        {"topk(0.001, scope=model) | f32 | raw32", {{5000, kConstant}, {5000, kConstant}}},
        {"topk(1, scope=model) | f16", {{5000}, {301}}},
        {"topk(0.5, scope=model) | f32", {{5000, kZero}, {301}}},
        {"topk(0.5, scope=model) | f32", {{5000, kZero}, {301, kSignedZeros}}},
        {"topk(0.1, scope=model) | f32", {{5000, kSubnormal}, {3000, kSubnormal}}},
        {"topk(0.1, scope=model) | f32", {{5000, kWideRange}, {3000, kNearMaximum}}},
        {"topk(0.05, scope=model) | sign(scale=two_mean) | elias_fano", {{5000}, {6000, kHeavyTailed}}},
        {"topk(0.05, scope=model) | dither | auto", {{5000}, {70'001}}},
        {"topk(0.05, scope=model) | exponential_dither | bitmap", {{5000}, {6000}}},
        {"topk(0.05, scope=model) | integer(100)", {{5000}, {6000}}},
        {"topk(0.05, scope=model) | pow2 | auto | entropy", {{9000}, {6000}}},
        {"warmup(2, from=0.3) | topk(0.05, scope=model) | pow2", {{9000}, {70'001}}},
        {"momentum(0.9) | topk(0.05, scope=model) | f32", {{9000}, {70'001}}, {kF32, kBf16}},
        {"momentum(0.9, nesterov=yes, clip=50) | topk(0.05, scope=model) | pow2", {{9000}, {6001}}},
        {"compensate(0.9, 0.5, 0.75) | topk(0.05, scope=model) | pow2", {{9000}, {6001}}},
        {"topk(0.05, scope=model) | pow2(bits=4) | auto", {{9001}, {6001}}, {kF32, kF16}, false, 1},
        {"topk(0.05, scope=model, gate=1) | pow2(bits=4) | auto", {{9001}, {6001}}, {kF32}, false, 1},
        {"topk(0.05, scope=model) | f32", {{9001}, {6001}, {300}}, {kF32, kF32}, false, 0, 2},
        {"topk(0.05, scope=model) | f32", {{9001}, {6001}}, {kF32}, false, 0, 1},
        {"topk(0.02, scope=model) | pow2(bits=4) | auto", {{kChunkElements + 5}, {kGroup}}},
    };
    if (!is_small)
        cases.insert(cases.end(), {{"topk(0.01, scope=model) | pow2(bits=4) | auto",
                                    {{30'000'001}, {5 * kChunkElements}, {kChunkElements - 1}, {77}},
                                    {kF32, kBf16}},
                                   {"topk(0.01, scope=model, gate=1) | sign | auto",
                                    {{7 * kChunkElements + 3}, {3 * kChunkElements}},
                                    {kF32, kF32}}});
    return cases;
}

std::vector<ScopeCase> shared_scope_cases(bool is_small) {
    std::vector<ScopeCase> cases = {
        {"topk(0.02, scope=model) | pow2(bits=4, scope=tensor) | auto",
         {{kChunkElements + 4097, kHeavyTailed}, {5000}}},
        // Ties that are cut in a part that is not the tensor's first, and in a tensor behind it.
        {"topk(0.999, scope=model) | sign | auto", {{kChunkElements + 5000, kConstant}, {0}, {1000, kConstant}}},
        {"topk(0.5, scope=model, gate=1) | bf16", {{3000}, {kChunkElements + 1}}, {kF32, kF16}},
    };
    if (!is_small)
        cases.insert(
            cases.end(),
            {{"momentum(0.9) | topk(0.01, scope=model) | pow2(bits=4) | auto",
              {{9 * kChunkElements + 3}, {kChunkElements}, {2 * kChunkElements}},
              {kF32, kBf16}},
             {"topk(0.01, scope=model) | f32", {{2 * kChunkElements + 1}, {kChunkElements + 1}}, {kF32}, false, 0, 2}});
    return cases;
}

}  // namespace gradsieve::gpu_check

#include "phase_cases.hpp"

namespace gradsieve::gpu_check {

std::vector<PhaseCase> low_rank_cases(bool is_small) {
    using enum codec::cuda::ElementType;
    using codec::DataKind;
    std::vector<PhaseCase> cases = {
        {"lowrank(1, 64)", 4096},
        {"lowrank(1, 1)", 300},
        {"lowrank(2, 7)", 1000, {kF32, kF32}},
        {"lowrank(3, 33)", 997, {kBf16, kF16, kF32}},
        {"lowrank(4, 100)", 20'011, {kF16}},
        {"lowrank(5, columns=square)", 70'001, {kBf16}, DataKind::kHeavyTailed},
        {"lowrank(8, 129)", 30'000},
        {"lowrank(64, 300)", 40'000},
        {"lowrank(64, 40)", 1},
        {"lowrank(2, 5000)", 15'001},
        {"lowrank(2, 50)", 5000, {kF32}, DataKind::kNearMaximum},
        {"lowrank(2, 300)", 9001, {kF32}, DataKind::kNearMaximum},
        {"lowrank(2, 50)", 5000, {kF32}, DataKind::kWideRange},
        {"lowrank(2, 50)", 5000, {kF32}, DataKind::kSubnormal},
        {"lowrank(2, 50)", 5000, {kF32}, DataKind::kZero},
        {"lowrank(2, 50)", 5000, {kF32}, DataKind::kSignedZeros},
        {"lowrank(2, 50)", 5000, {kF32, kF32}, DataKind::kGaussian, 19},
        {"lowrank(2, 50)", 5000, {kF32, kF32}, DataKind::kGaussian, 1, 2},
        {"compensate(0.5, 0.25, 0.75) | lowrank(2, 33)", 9000},
        {"momentum(0.9) | lowrank(2, 60)", 9001, {kF32, kBf16}},
        {"momentum(0.9, nesterov=yes) | compensate(lowpass=0.5) | lowrank(3, 60)",
         9001,
         {kF32},
         DataKind::kGaussian,
         3,
         2},
        {"accumulate(2) | lowrank(2, 60)", 9001},
        {"momentum | compensate(0.9, lowpass=0.5) | accumulate(3) | lowrank(1, 80)", 9001},
    };
    // More rows than a warp each has room for, and more columns than narrow strips are for.
    if (!is_small)
        cases.insert(cases.end(), {{"lowrank(1, 37)", 1'200'011},
                                   {"lowrank(4, 6000)", 6'000'001, {kF32, kBf16}},
                                   {"lowrank(6, columns=square)", 30'000'001},
                                   {"lowrank(40, columns=square)", 2'000'003}});
    return cases;
}

std::vector<PhaseCase> sketch_cases(bool is_small) {
    using enum codec::cuda::ElementType;
    using codec::DataKind;
    std::vector<PhaseCase> cases = {
        {"sketch(0.02)", 1},
        {"sketch(0.24, 1)", 65},
        {"sketch(0.01)", 4096, {kF32, kBf16}},
        {"sketch(0.05, 3, 100)", 4097, {kF16}},
        // Blocks of 1,024 elements, more than one range of cells; fewer columns than a block would have.
        {"sketch(0.05, 5, 2500)", 30'011, {kF32}, DataKind::kHeavyTailed},
        {"sketch(0.02, 7)", 20'000, {kF32, kF32, kF16}},
        // More blocks than are looked at together.
        {"sketch(0.001, 1, 64)", 263'000},
        {"sketch(0.02, 3)", 9001, {kF32}, DataKind::kNearMaximum},
        {"sketch(0.02, 3)", 9001, {kF32}, DataKind::kWideRange},
        {"sketch(0.02, 3)", 9001, {kF32}, DataKind::kSubnormal},
        {"sketch(0.02, 3)", 9001, {kF32}, DataKind::kZero},
        {"sketch(0.25, 3, 3000)", 9001, {kF32}, DataKind::kSignedZeros},
        {"sketch(0.02)", 5000, {kF32, kF32}, DataKind::kGaussian, 19},
        {"sketch(0.02)", 5000, {kF32, kF32}, DataKind::kGaussian, 2, 2},
        {"compensate(0.5, 0.25, 0.75) | sketch(0.02)", 9000},
        {"momentum(0.9, clip=2) | sketch(0.02)", 9001, {kF32, kBf16}},
        {"momentum(0.9, nesterov=yes) | compensate(lowpass=0.5) | sketch(0.03, 1)",
         9001,
         {kF32},
         DataKind::kGaussian,
         3,
         2},
        {"accumulate(2) | sketch(0.02)", 9001},
        {"momentum | compensate(0.9, lowpass=0.5) | accumulate(3) | sketch(0.02)", 9001},
    };
    if (!is_small)
        cases.insert(cases.end(), {{"sketch(0.01)", 8'388'608, {kF32, kBf16}},
                                   {"sketch(0.01)", 30'000'001},
                                   {"sketch(0.001, 7)", 5'000'000},
                                   {"sketch(0.24, 1)", 3'000'003}});
    return cases;
}

}  // namespace gradsieve::gpu_check

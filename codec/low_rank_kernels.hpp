// The loops of lowrank that touch every element of a matrix, in one form per instruction set. All forms give the same
// bits: fp32 operations in a stated order without contraction. `factors` are rows of numbers, each `stride` behind the
// one before. Any thread; no state.
#pragma once

#include "codec/cpu_form.hpp"

#include <cstddef>
#include <cstdint>

namespace gradsieve::codec {

/// Elements are cut off at that magnitude on their way into a factor, so that no sum of a tensor's overflows; what is
/// cut off stays in r.
inline constexpr float kFactorLimit = 0x1p96F;

struct LowRankKernels {
    /// ret_sums[k] = sum over i of fl(values[i] * factors[k][i]), values cut off: 32 strided lanes in order, then lane
    /// l takes lane l + 16, l + 8, l + 4, l + 2, l + 1.
    void (*project)(const float* values, std::uint32_t count, const float* factors, std::size_t stride,
                    std::uint32_t rank, float* ret_sums);
    /// For each of `rows` rows in order, of `count` values each, `stride` apart: factors[k][i] = fl(factors[k][i] +
    /// fl(left[k] * values[i])), values cut off; `left` has `rank` numbers for each row.
    void (*add_outer)(const float* values, std::uint32_t rows, std::uint32_t count, const float* left,
                      std::uint32_t rank, float* inout_factors, std::size_t stride);
    /// ret_values[i] = sum over k, in order from +0, of fl(row[k] * factors[k][i]).
    void (*expand)(const float* row, std::uint32_t rank, const float* factors, std::size_t stride, std::uint32_t count,
                   float* ret_values);
    /// values[i] = fl(values[i] - that sum), cut off at the largest finite number.
    void (*subtract)(const float* row, std::uint32_t rank, const float* factors, std::size_t stride,
                     std::uint32_t count, float* inout_values);
};

/// The form in use, as payload_kernels.
[[nodiscard]] const LowRankKernels& low_rank_kernels() noexcept;
/// One form, or null where the CPU or the build lacks it.
[[nodiscard]] const LowRankKernels* low_rank_kernels_of(CpuForm form) noexcept;

extern const LowRankKernels kLowRankKernelsScalar;
#if defined(__x86_64__)
extern const LowRankKernels kLowRankKernelsAvx2;
extern const LowRankKernels kLowRankKernelsAvx512;
#endif

}  // namespace gradsieve::codec

// What all nodes' factors of lowrank decode to.
#include "codec/low_rank_kernels.hpp"
#include "codec/phase_memory.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::codec {
namespace {

/// No honest mean is above: elements are cut off at kFactorLimit, and a factor of norm 1 adds up at most 2^30 of them
/// with a norm of 2^15. So that no sum of kMostRank products overflows.
constexpr float kMostOfMean = 0x1p116F;

}  // namespace

LowRankMemory::LowRankMemory(const MatrixShape& matrix)
    : shape(matrix),
      factors(matrix.right_elements()),
      left(matrix.left_elements()),
      right(matrix.right_elements()),
      left_mean(matrix.left_elements()),
      right_mean(matrix.right_elements()),
      left_average(0, left_mean.data(), left_mean.size()),
      right_average(0, right_mean.data(), right_mean.size()) {}

ByteCount LowRankMemory::bytes(const MatrixShape& matrix) noexcept {
    return (2 * sizeof(float) + sizeof(double)) * matrix.left_elements() + 3 * sizeof(float) * matrix.right_elements();
}

Result<bool> LowRankMemory::decode_first(const PhaseStep& at, std::span<const Contribution> contributions) {
    GRADSIEVE_ASSIGN(const auto decoded, left_average.decode_average(at.step, contributions));
    orthonormalize(left_mean, shape.rank, left, columns);
    return decoded.touched_elements > 0;
}

Result<bool> LowRankMemory::average_right(Step step, std::span<const Contribution> contributions) {
    GRADSIEVE_ASSIGN(const auto decoded, right_average.decode_average(step, contributions));
    if (decoded.touched_elements == 0) return false;
    for (const float value : right_mean)
        if (std::fabs(value) > kMostOfMean)
            return Status(StatusCode::kCorrupt, "mean of a factor: " + std::to_string(value) +
                                                    ": allowed are magnitudes up to 2^116; install the same release "
                                                    "on all nodes");
    return true;
}

void LowRankMemory::keep_factor() {
    if (factor_out != nullptr) std::ranges::copy(right_mean, factor_out);
}

Result<DecodeResult> LowRankMemory::decode_last(Step step, std::span<const Contribution> contributions,
                                                ResultTensor& inout_result) {
    GRADSIEVE_ASSIGN(const bool is_sent, average_right(step, contributions));
    if (!is_sent) return inout_result.decode_average(step, {});
    const auto& kernels = low_rank_kernels();
    const auto result = inout_result.write_all(step, [&](ElementCount first, std::span<float> ret_values) {
        for (std::size_t at = 0; at < ret_values.size();) {
            const ElementCount row = (first + at) / shape.columns;
            const ElementCount column = (first + at) % shape.columns;
            const auto count =
                static_cast<std::uint32_t>(std::min<ElementCount>(shape.columns - column, ret_values.size() - at));
            kernels.expand(left.data() + row * shape.rank, shape.rank, right_mean.data() + column, shape.columns, count,
                           ret_values.data() + at);
            at += count;
        }
    });
    keep_factor();
    return result;
}

}  // namespace gradsieve::codec

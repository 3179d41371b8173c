// Launchers of the kernels of lowrank: what touches every element of its matrix, in device memory. The same bits as
// codec/low_rank_kernels.hpp, since its order of sums is a warp's in one direction and a thread's in the other.
#pragma once

#include "codec/cuda/result_targets.hpp"
#include "codec/low_pass.hpp"
#include "codec/stages/low_rank.hpp"

#include <cuda_runtime_api.h>

namespace gradsieve::codec::cuda {

/// As MatrixShape, of numbers that a GPU takes: at most 2^32 - 1 elements.
struct DeviceMatrix {
    std::uint32_t elements = 0, rows = 0, columns = 0, rank = 1;
};
[[nodiscard]] inline DeviceMatrix device_matrix(const MatrixShape& shape) noexcept {
    return {static_cast<std::uint32_t>(shape.elements), static_cast<std::uint32_t>(shape.rows),
            static_cast<std::uint32_t>(shape.columns), shape.rank};
}

/// ret_left = M Q, row by row; `factors`: Q transposed. `multiprocessors` of the device: small matrices are spread over
/// more of it.
cudaError_t launch_project(const DeviceMatrix& matrix, const float* values, const float* factors, float* ret_left,
                           unsigned multiprocessors, cudaStream_t stream);

/// ret_right = (M^T P) transposed, `rank` rows.
cudaError_t launch_add_outer(const DeviceMatrix& matrix, const float* values, const float* left, float* ret_right,
                             unsigned multiprocessors, cudaStream_t stream);

/// What P Q'^T says less: r = r - P Q'^T, and then the low-pass of `before`, if `low_pass.take` is not 0.
struct SubtractStep {
    float* residual = nullptr;
    const float* before = nullptr;
    LowPassFactors low_pass{0, 0};
};
cudaError_t launch_subtract(const DeviceMatrix& matrix, const SubtractStep& step, const float* left, const float* right,
                            cudaStream_t stream);

/// P Q'^T into every target, and its digest.
cudaError_t launch_expand(const DeviceMatrix& matrix, const ResultTargets& targets, const float* left,
                          const float* right, cudaStream_t stream);

}  // namespace gradsieve::codec::cuda

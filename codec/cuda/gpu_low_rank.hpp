// The part of lowrank that touches every element of a matrix, in the memory of one device; factors come from the host
// and go there. Several tensors at a time, with one copy each way and one wait for all. The same bits as
// codec/low_rank_kernels.hpp. GPU worker thread.
#pragma once

#include "codec/cuda/device.hpp"
#include "codec/cuda/gpu_decoder.hpp"
#include "codec/cuda/round_trip.hpp"
#include "codec/low_pass.hpp"
#include "codec/stages/low_rank.hpp"

#include <span>
#include <vector>

namespace gradsieve::codec::cuda {

/// ret_left = M Q. `values`: the matrix, device memory, at most 2^32 - 1 elements; `factors`: Q transposed.
struct ProjectWork {
    MatrixShape shape;
    const float* values = nullptr;
    std::span<const float> factors;
    std::span<float> ret_left;
};
/// ret_right = M^T P, transposed, and then M = M - P (M^T P)^T; with a low-pass (`low_pass.take` is not 0), that of it
/// and `before`. `residual`: the matrix; it and `before` are device memory.
struct SettleWork {
    MatrixShape shape;
    float* residual = nullptr;
    const float* before = nullptr;
    LowPassFactors low_pass{0, 0};
    std::span<const float> left;
    std::span<float> ret_right;
};
/// P Q'^T into every result of this device (`data` and `type` of each), and the digest that ResultTensor::write_all
/// gives.
struct ExpandWork {
    MatrixShape shape;
    TensorId tensor = 0;
    Step step = 0;
    std::span<const float> left, right;
    std::vector<GpuResult> results;
    std::uint64_t* ret_digest = nullptr;  ///< null: nobody asks
};

class GpuLowRank {
public:
    /// Calls nothing of CUDA. `multiprocessors`: of the device.
    GpuLowRank(int device, int multiprocessors)
        : trip_(device, "factors of lowrank"), multiprocessors_(multiprocessors) {}

    /// Behind what `stream` of the device holds; waits for it. Errors: kResourceExhausted (memory for factors),
    /// kUnavailable (the device failed: what was to be written is unspecified).
    [[nodiscard]] Status project(const Stream& stream, std::span<const ProjectWork> work);
    [[nodiscard]] Status settle(const Stream& stream, std::span<const SettleWork> work);
    [[nodiscard]] Status expand(const Stream& stream, std::span<const ExpandWork> work);

    [[nodiscard]] ByteCount workspace_bytes() const noexcept { return trip_.bytes(); }

private:
    RoundTrip trip_;
    int multiprocessors_ = 1;
};

}  // namespace gradsieve::codec::cuda

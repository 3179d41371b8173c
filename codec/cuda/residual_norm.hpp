// Norm of a residual in device memory, for status: the same fp64 tree as residual_square_sum of codec/encoder.hpp. GPU
// worker thread.
#pragma once

#include "codec/cuda/device.hpp"

namespace gradsieve::codec::cuda {

/// Sums of squares of tensors, one after the other; keeps one sum per tile of the largest tensor so far.
class ResidualNorm {
public:
    /// Behind what `stream` holds; waits for it. Errors: kResourceExhausted, kUnavailable.
    [[nodiscard]] Result<double> square_sum(const Stream& stream, const float* residual, ElementCount elements);

private:
    DeviceMemory sums_;
    PinnedMemory host_sums_;
};

}  // namespace gradsieve::codec::cuda

// Norm of a residual in device memory, for status: the same fp64 tree as residual_square_sum of codec/encoder.hpp, also
// where several devices share it. GPU worker thread.
#pragma once

#include "codec/cuda/device.hpp"

#include <span>
#include <vector>

namespace gradsieve::codec::cuda {

/// What one device has of a residual; in whole tiles, but at the tensor's end.
struct ResidualPart {
    const Stream* stream = nullptr;
    const float* residual = nullptr;
    ElementCount elements = 0;
};

/// Sums of squares of tensors, one after the other; keeps one sum per tile of the largest tensor so far.
class ResidualNorm {
public:
    /// `parts`: ascending, one per device and always of the same devices. Behind what the streams hold; waits for them.
    /// Errors: kResourceExhausted, kUnavailable.
    [[nodiscard]] Result<double> square_sum(std::span<const ResidualPart> parts);

private:
    std::vector<DeviceMemory> sums_;  ///< one per part
    PinnedMemory host_sums_;
};

}  // namespace gradsieve::codec::cuda

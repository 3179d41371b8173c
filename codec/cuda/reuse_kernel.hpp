// Launcher of the kernel behind gpu_reuse.hpp.
#pragma once

#include "base/id.hpp"

#include <cuda_runtime_api.h>

namespace gradsieve::codec::cuda {

/// Where p becomes p - d, and its tiles' sums.
struct SubtractTerms {
    float* values;
    const float* decoded;
    ElementCount elements;
    double* before;  ///< of each tile, in the order of residual_norm_kernel.hpp
    double* after;
};
cudaError_t launch_subtract_tiles(const SubtractTerms& terms, cudaStream_t stream);

}  // namespace gradsieve::codec::cuda

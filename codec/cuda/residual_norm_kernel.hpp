// Launcher of the kernel behind residual_norm.hpp.
#pragma once

#include "base/id.hpp"

#include <cuda_runtime_api.h>

namespace gradsieve::codec::cuda {

/// ret_sums[t] = sum of squares of tile t in fp64: 32 strided lanes in order, then lane i + 16 onto lane i, 8, 4, 2, 1.
cudaError_t launch_tile_square_sums(const float* residual, ElementCount elements, double* ret_sums,
                                    cudaStream_t stream);

}  // namespace gradsieve::codec::cuda

// How the warps that look at a tile in the dense pass share it: which vectors are whose, and where they wait for each
// other. Device code only.
#pragma once

#include "codec/cuda/tile_pipe.cuh"

namespace gradsieve::codec::cuda {

/// This thread's j-th vector, in the tile.
__device__ inline unsigned own_vector(unsigned j) { return vector_number(threadIdx.x / 32, j); }

/// Where those that look wait for each other.
__device__ inline void meet_lookers() { meet(1, kPassThreads); }

}  // namespace gradsieve::codec::cuda

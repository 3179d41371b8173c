// How the warps that look at a tile in the dense pass share it: which vectors are whose, and when the tile's stage is
// given back. Device code only.
#pragma once

#include "codec/cuda/tile_pipe.cuh"

namespace gradsieve::codec::cuda {

/// This thread's j-th vector, in the tile.
__device__ inline unsigned own_vector(unsigned j) { return vector_number(threadIdx.x / 32, j); }

inline constexpr unsigned kAllHaveRead = 1;  ///< barrier of those that look

/// Every thread has read the stage's arrays.
__device__ inline void release(const TileStage& stage) {
    meet(kAllHaveRead, kPassThreads);
    if (threadIdx.x == 0) arrive(stage.empty);
}

}  // namespace gradsieve::codec::cuda

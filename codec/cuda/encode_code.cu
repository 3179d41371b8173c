// The last kernel of a round of lists: the payload of each chunk; blocks: one for each chunk.
#include "codec/cuda/chunk_code.cuh"
#include "codec/cuda/early_start.cuh"

namespace gradsieve::codec::cuda {
namespace {

__global__ void __launch_bounds__(kCodeThreads, 1) code_chunks(const __grid_constant__ EncodeRound round) {
    __shared__ CodeShared shared;
    begin_kernel();
    code_chunk(round, blockIdx.x, shared);
}

}  // namespace

KernelHandle code_kernel() noexcept { return &code_chunks; }

}  // namespace gradsieve::codec::cuda

// The last kernel of a round of lists: the payload of each chunk; blocks: one for each chunk. And the way of a batch's
// payloads to the host.
#include "codec/cuda/chunk_code.cuh"

namespace gradsieve::codec::cuda {
namespace {

__global__ void __launch_bounds__(kCodeThreads, 1) code_chunks(const __grid_constant__ EncodeRound round) {
    __shared__ CodeShared shared;
    code_chunk(round, blockIdx.x, shared);
}

/// What lists there are lies side by side: up to the cursor.
__global__ void __launch_bounds__(kCodeThreads) copy_lists(const __grid_constant__ EncodeRound round) {
    const ByteCount end = min(*round.cursor, round.mirror_bytes) / kPayloadAlignment;
    const auto* payload = reinterpret_cast<const uint4*>(round.payload);
    auto* mirror = reinterpret_cast<uint4*>(round.mirror);
    const ByteCount first = round.first_list_byte / kPayloadAlignment;
    for (ByteCount at = first + blockIdx.x * kCodeThreads + threadIdx.x; at < end; at += gridDim.x * kCodeThreads)
        mirror[at] = payload[at];
}

}  // namespace

KernelHandle copy_kernel() noexcept { return &copy_lists; }
KernelHandle code_kernel() noexcept { return &code_chunks; }

}  // namespace gradsieve::codec::cuda

// integer where every element is sent (codec/stages/integer.hpp): the dense pass leaves codes in words, and once all of
// a chunk's are there, they are packed as wide as the largest one wants.
#include "codec/cuda/dense_tiles.cuh"
#include "codec/cuda/payload_layout.cuh"
#include "codec/cuda/tile_group.cuh"

namespace gradsieve::codec::cuda {
namespace {

/// Version, form, value form, step.
constexpr std::uint32_t kHeaderBytes = 7;
/// A payload's values begin at a vector, and so does what it has taken of the batch's payloads.
constexpr std::uint32_t kValuesAt = 16;

/// Bits of a payload's codes.
__device__ inline std::uint32_t code_bits_in(const std::byte* payload) {
    return (static_cast<std::uint32_t>(payload[2]) & 31U) + 1U;
}

__global__ void __launch_bounds__(kTileThreads) place_integers(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    const std::uint32_t number = blockIdx.x * kTileThreads + threadIdx.x;
    if (number >= round.chunk_count) return;
    ChunkResult& result = round.chunk_results[number];
    if (result.bytes == 0) return;
    const ChunkPlan& chunk = round.chunks[number];
    const std::uint32_t bits = integer_bits(result.bytes);
    const std::uint32_t value_bytes = (chunk.elements * bits + 7U) / 8U;
    const unsigned long long reserved = (kValuesAt + value_bytes + kValuesAt - 1ULL) / kValuesAt * kValuesAt;
    const std::uint64_t begin = atomicAdd(reinterpret_cast<unsigned long long*>(round.cursor), reserved);
    result = {begin + kValuesAt - kHeaderBytes, kHeaderBytes + value_bytes, chunk.elements};
    std::byte* header = round.payload + result.offset;
    header[0] = static_cast<std::byte>(payload_version(stages::Integer::kFacts.kind, IndexForm::kEvery));
    header[1] = static_cast<std::byte>(form_byte(stages::Integer::kFacts.kind, IndexForm::kEvery));
    header[2] = static_cast<std::byte>(value_byte(bits, false));
    store_word(header + 3, element::bits_of(round.tensors[chunk.tensor].depth_per_bit));
}

/// Writes a tile's codes, word by word of the payload: its codes begin at one. A whole warp.
__device__ inline void pack_tile(const std::uint32_t* codes, std::uint32_t elements, std::uint32_t bits,
                                 std::uint32_t* ret_words) {
    const std::uint32_t words = (elements * bits + 31U) / 32U;
    for (std::uint32_t number = threadIdx.x % 32; number < words; number += 32) {
        const std::uint32_t begin = number * 32;
        std::uint32_t word = 0;
        for (std::uint32_t at = begin / bits; at < elements && at * bits < begin + 32U; ++at) {
            const std::uint32_t field = integer_field(codes[at], bits);
            const int shift = static_cast<int>(at * bits) - static_cast<int>(begin);
            word |= shift >= 0 ? field << shift : field >> -shift;
        }
        ret_words[number] = word;
    }
}

__global__ void __launch_bounds__(kTileThreads) pack_integers(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    const GroupWork work = group_work(round, blockIdx.x);
    const ChunkResult result = round.chunk_results[work.chunk];
    if (result.bytes == 0) return;
    std::byte* payload = round.payload + result.offset;
    const std::uint32_t bits = code_bits_in(payload);
    for (std::uint32_t number = threadIdx.x / 32; number < work.tiles; number += kWarps) {
        const GroupTile tile = group_tile(round, work, number);
        std::byte* values = payload + kHeaderBytes + (work.first_in_chunk + number) * (kTile / 8) * bits;
        pack_tile(reinterpret_cast<const std::uint32_t*>(waiting_values_of(round, tile.tile)), tile.elements, bits,
                  reinterpret_cast<std::uint32_t*>(values));
    }
}

}  // namespace

PassKernel find_integer_kernel(unsigned samples) noexcept {
    return pick_dense<stages::Integer::kFacts.kind, false>(samples);
}
KernelHandle place_integers_kernel() noexcept { return &place_integers; }
KernelHandle pack_integers_kernel() noexcept { return &pack_integers; }

}  // namespace gradsieve::codec::cuda

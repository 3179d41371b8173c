// First kernel of decoding: one block reads one list payload and checks it. Of Rice, Elias-Fano and 32-bit indices it
// leaves sorted indices and products factor * value; of bitmaps, which the second kernel reads in place, only where
// each unit begins. What it finds corrupt is marked before any average is written. Reads only sections whose length the
// host has checked; never trusts what the bits say.
#include "codec/cuda/launch.hpp"
#include "codec/cuda/list_indices.cuh"
#include "codec/cuda/list_scales.cuh"
#include "codec/cuda/list_values.cuh"
#include "codec/cuda/ptx.cuh"

namespace gradsieve::codec::cuda {
namespace {

constexpr std::uint32_t kLineBytes = 128;

/// Checks the length of the value section. False if corrupt.
__device__ bool has_value_section(const DevicePayload& payload, const BitSection& values, std::uint32_t used_bytes) {
    const std::uint32_t bits = payload.count * payload.value_bits;
    return payload.body_bytes - used_bytes == bytes_of(bits) && has_clear_padding(values, bits);
}

/// Fills the products, a warp for each tile. False if corrupt.
template <bool kMayBeExponential>
__device__ bool read_values(const DevicePayload& payload, const std::byte* body, const BitSection& values,
                            const ListShared& shared, float* ret_values) {
    const BitSection words(body);
    bool is_bad = false;
    for (std::uint32_t tile = threadIdx.x / 32; tile < kMaximumTiles; tile += kListWarps) {
        const std::uint32_t end = shared.starts[(tile + 1) * kUnitsPerTile];
        const std::uint32_t scale = shared.tile_scale[shared.rank[tile]];
#pragma unroll 4
        for (std::uint32_t element = shared.starts[tile * kUnitsPerTile] + threadIdx.x % 32; element < end;
             element += 32) {
            const std::uint32_t bits =
                payload.is_paper_word
                    ? pow2_bits_of(words.word_at(32 * element) >> kPaperWordCodeShift, 4, scale, is_bad)
                    : value_bits_of<kMayBeExponential>(payload, values, element, scale, is_bad);
            ret_values[element] = payload.factor * __uint_as_float(bits);
        }
    }
    return !__syncthreads_or(is_bad);
}

/// What the second kernel needs of the list.
__device__ void write_table(const DevicePayload& payload, const ListShared& shared, std::uint32_t used_bytes,
                            std::uint32_t* ret_table) {
    const std::uint32_t units = units_in(payload);
    for (std::uint32_t unit = threadIdx.x; unit <= units; unit += kListThreads) ret_table[unit] = shared.starts[unit];
    if (!payload.is_direct) return;
    if (threadIdx.x == 0) {
        const bool is_every = payload.index_form == IndexForm::kEvery;
        ret_table[units + 1] = is_every ? payload.chunk_elements : shared.used_bits;
        ret_table[units + 2] = used_bytes;
    }
    const std::uint32_t tiles = (units + kUnitsPerTile - 1) / kUnitsPerTile;
    if (threadIdx.x < tiles) ret_table[units + 3 + threadIdx.x] = shared.tile_scale[shared.rank[threadIdx.x]];
}

/// Asks for what will be read, so that the first reads of each section do not wait for memory one after the other.
__device__ void prefetch(const std::byte* body, std::uint32_t bytes) {
    const std::uint32_t place = threadIdx.x * kLineBytes;
    if (place < bytes) prefetch_line(body + place);
}

/// Everything about one list. The same answer in every thread of the block.
template <bool kMayBeExponential>
__device__ bool read_list(const DevicePayload& payload, const DecodeTables& tables, ListShared& shared) {
    const std::byte* body = tables.bytes + payload.body_offset;
    prefetch(body, payload.body_bytes);
    std::uint32_t used_bytes = 0;
    const std::byte* bits = index_bits_of(tables, payload);
    if (!read_indices(payload, body, bits, shared, tables.indices + payload.entry_offset, used_bytes)) return false;
    const std::uint32_t tiles = rank_tiles(shared);
    if (!read_tile_scales<kMayBeExponential>(payload, body, tiles, shared, used_bytes)) return false;
    const BitSection values(body + used_bytes);
    if (!has_value_section(payload, values, used_bytes)) return false;
    write_table(payload, shared, used_bytes, tables.list_tables + payload.table_offset);
    return payload.is_direct ||
           read_values<kMayBeExponential>(payload, body, values, shared, tables.values + payload.entry_offset);
}

template <bool kMayBeExponential>
__global__ void __launch_bounds__(kListThreads, 2) decode_lists(DecodeTables tables, std::uint32_t first_list) {
    __shared__ ListShared shared;
    const std::uint32_t place = tables.lists[first_list + blockIdx.x];
    const DevicePayload payload = tables.payloads[place];
    if (read_list<kMayBeExponential>(payload, tables, shared) || threadIdx.x != 0) return;
    tables.payload_faults[place] = 1;
    tables.reports[payload.tensor].has_bad_list = 1;
}

}  // namespace

int launch_decode_lists(const DecodeTables& tables, const DecodeRound& round, void* stream) {
    return launch(round.has_exponential ? &decode_lists<true> : &decode_lists<false>, {round.lists, kListThreads},
                  static_cast<cudaStream_t>(stream), tables, round.first_list);
}

}  // namespace gradsieve::codec::cuda

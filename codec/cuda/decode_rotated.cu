// Decoding of chunks whose payloads are rotated (codec/rotation.hpp): a block takes tile after tile, adds up what the
// nodes sent in node order, and rotates the sum back; where each node has a key of its own, each node's numbers before
// it adds them. Sums, results and digests are those of the host's decoder, bit for bit.
#include "codec/cuda/launch.hpp"
#include "codec/cuda/rotate_stages.cuh"
#include "codec/cuda/unit_base.cuh"
#include "codec/cuda/unit_dense.cuh"
#include "codec/cuda/unit_reports.cuh"
#include "codec/cuda/unit_results.cuh"

namespace gradsieve::codec::cuda {
namespace {

/// A warp has half a unit: four groups, which are consecutive vectors.
constexpr unsigned kThreads = kUnitsPerTile * kHalves * kLanes;
constexpr unsigned kNumbers = 4 * kGroupsPerHalf;
/// Elements of a warp, and warps.
constexpr std::uint32_t kWarpElements = kLanes * kNumbers;
constexpr unsigned kWarps = kThreads / kLanes;
static_assert(kWarps * kWarpElements == kRotatedTile && kNumbers == 16 && kWarps == 8);

/// This thread's group in the tile's values.
__device__ inline float4* own_group(float* values, std::uint32_t part) {
    const std::uint32_t first = threadIdx.x / kLanes * kWarpElements + part * 4 * kLanes;
    return reinterpret_cast<float4*>(values + first) + lane_of_thread();
}
__device__ inline void put_numbers(const float (&numbers)[kNumbers], float* ret_values) {
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part)
        *own_group(ret_values, part) =
            make_float4(numbers[4 * part], numbers[4 * part + 1], numbers[4 * part + 2], numbers[4 * part + 3]);
}
__device__ inline void take_numbers(float* values, float (&ret_numbers)[kNumbers]) {
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
        const float4 four = *own_group(values, part);
        ret_numbers[4 * part] = four.x;
        ret_numbers[4 * part + 1] = four.y;
        ret_numbers[4 * part + 2] = four.z;
        ret_numbers[4 * part + 3] = four.w;
    }
}

/// The stages of pairs in different warps, 512 elements apart and more.
__device__ inline void add_across_warps(float* inout_values) {
    __syncthreads();
    float* const own = inout_values + threadIdx.x;
#pragma unroll
    for (std::uint32_t half = 0; half < 2; ++half) {
        float across[kWarps];
#pragma unroll
        for (unsigned i = 0; i < kWarps; ++i) across[i] = own[half * kThreads + i * kWarpElements];
        add_halves<1>(across);
        add_halves<2>(across);
        add_halves<4>(across);
#pragma unroll
        for (unsigned i = 0; i < kWarps; ++i) own[half * kThreads + i * kWarpElements] = across[i];
    }
    __syncthreads();
}

/// A tensor's last tile.
__device__ __noinline__ void add_stages_of_part(float* inout_values, std::uint32_t elements) {
    __syncthreads();
    add_in_part(
        inout_values, elements, kThreads, [](std::uint32_t i) { return i; }, [] { __syncthreads(); });
}

/// Rotates a tile's sums back, of which this thread has half a unit's. The whole block; `values`: shared memory, this
/// thread's own in the places of its numbers before and afterwards.
__device__ inline void rotate_back(PhiloxKey key, std::uint32_t tile, std::uint32_t elements, float* values,
                                   Groups& inout_sums) {
    float numbers[kNumbers];
    const bool is_whole = elements == kRotatedTile;
    const std::uint32_t warp = threadIdx.x / kLanes;
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
        const float4 four = inout_sums.of[part];
        numbers[4 * part] = four.x;
        numbers[4 * part + 1] = four.y;
        numbers[4 * part + 2] = four.z;
        numbers[4 * part + 3] = four.w;
    }
#pragma unroll
    for (unsigned i = 0; i < kNumbers; ++i) {
        const std::uint32_t element = warp * kWarpElements + (i / 4 * kLanes + lane_of_thread()) * 4 + i % 4;
        numbers[i] = numbers[i] * (is_whole ? kTileRotationScale : rotation_scale(rotation_order(element, elements)));
    }
    if (is_whole) add_in_warp(numbers);
    put_numbers(numbers, values);
    if (is_whole)
        add_across_warps(values);
    else
        add_stages_of_part(values, elements);
    take_numbers(values, numbers);
    constexpr std::uint32_t kVectorsOfTile = kRotatedTile / 128;
    flip_signs(draw_signs<kGroupsPerHalf>(key, tile * kVectorsOfTile + warp * kGroupsPerHalf), numbers);
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part)
        inout_sums.of[part] = make_float4(numbers[4 * part] + 0.0F, numbers[4 * part + 1] + 0.0F,
                                          numbers[4 * part + 2] + 0.0F, numbers[4 * part + 3] + 0.0F);
}

/// What the nodes sent of this thread's half unit, rotated back. The whole block.
__device__ inline Groups average_of(const DecodeTables& tables, const DeviceChunk& chunk, const Unit& unit,
                                    std::uint32_t half, std::uint32_t tile, std::uint32_t elements, float* values,
                                    Tally& inout_tally) {
    Groups sums{};
    if (!chunk.has_several_rotations) {
        for (std::uint32_t source = 0; source < chunk.payloads; ++source)
            add_dense<true, false>(tables, chunk.first_payload + source, unit, half, sums, inout_tally);
        rotate_back(tables.payloads[chunk.first_payload].rule.key, tile, elements, values, sums);
        return sums;
    }
    for (std::uint32_t source = 0; source < chunk.payloads; ++source) {
        Groups own{};
        add_dense<true, false>(tables, chunk.first_payload + source, unit, half, own, inout_tally);
        rotate_back(tables.payloads[chunk.first_payload + source].rule.key, tile, elements, values, own);
#pragma unroll
        for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
            float4& sum = sums.of[part];
            const float4& more = own.of[part];
            sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
        }
    }
    return sums;
}

template <bool kHasBase>
__global__ void __launch_bounds__(kThreads, kRotatedBlocks) average_rotated(DecodeTables tables, DecodeRound round) {
    alignas(16) __shared__ float values[kRotatedTile];
    const auto share = [&](std::uint64_t block) {
        return round.first_unit + static_cast<std::uint32_t>(block * round.units / gridDim.x);
    };
    // Tiles whose first unit lies in the block's share.
    std::uint32_t unit = share(blockIdx.x);
    const std::uint32_t end = share(blockIdx.x + 1ULL);
    if (unit >= end) return;
    const std::uint32_t part = threadIdx.x / kLanes;
    const std::uint32_t half = part % kHalves;
    Tally tally;
    for (std::uint32_t place = find_chunk(tables, round, unit); unit < end; ++place) {
        const DeviceChunk& chunk = tables.chunks[place];
        const DeviceTensor tensor = tables.tensors[chunk.tensor];
        const bool is_good = tables.reports[chunk.tensor].has_bad_list == 0;
        std::uint32_t tile = (unit - chunk.first_unit + kUnitsPerTile - 1) / kUnitsPerTile;
        for (; tile * kUnitsPerTile < chunk.units && chunk.first_unit + tile * kUnitsPerTile < end; ++tile) {
            if (!is_good) continue;
            const std::uint32_t elements = min(kRotatedTile, chunk.elements - tile * kRotatedTile);
            const std::uint32_t in_tile = part / kHalves * kUnitElements;
            const Unit one{tile * kUnitsPerTile + part / kHalves,
                           elements > in_tile ? min(kUnitElements, elements - in_tile) : 0U};
            Groups sums = average_of(tables, chunk, one, half, tile, elements, values, tally);
            if constexpr (kHasBase) add_base(tables, chunk, one, half, sums);
            tally_groups(chunk, one, half, sums, tally);
            write_results(tables, chunk, one, half, sums, false);
            if (part == 0) static_cast<void>(note_touched(tables, chunk, tensor, one, true));
            const std::uint32_t in_unit = half * kWarpElements;
            if (lane_of_thread() == 0 && one.elements > in_unit)
                tally.touched += min(kWarpElements, one.elements - in_unit);
        }
        unit = chunk.first_unit + chunk.units;
        flush(tables.reports[chunk.tensor], tally);
    }
}

}  // namespace

int launch_average_rotated(const DecodeTables& tables, const DecodeRound& round, const AverageBlocks& blocks,
                           void* stream) {
    const unsigned useful = (round.units + kUnitsPerTile - 1) / kUnitsPerTile;
    const unsigned used = useful < blocks.rotated ? useful : blocks.rotated;
    return launch(round.has_base ? &average_rotated<true> : &average_rotated<false>, {used, kThreads},
                  static_cast<cudaStream_t>(stream), tables, round);
}

}  // namespace gradsieve::codec::cuda

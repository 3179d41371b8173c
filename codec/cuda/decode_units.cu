// Second kernel of decoding: blocks take consecutive units, and each of their warps adds all nodes' values of one unit
// in node order, writes the average to every result and sums the digest. Products and sums are rounded one by one,
// starting from +0, exactly as payload_kernels.inl does. Leaves tensors alone whose lists were corrupt; marks values
// that the first kernel did not look at and that are not finite or below the normal range.
#include "codec/cuda/launch.hpp"
#include "codec/cuda/unit_base.cuh"
#include "codec/cuda/unit_dense.cuh"
#include "codec/cuda/unit_lists.cuh"
#include "codec/cuda/unit_reports.cuh"
#include "codec/cuda/unit_results.cuh"
#include "codec/stages/vote.hpp"

namespace gradsieve::codec::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kLanes;
/// More resident warps hide more waits; what registers and shared memory allow.
constexpr unsigned kListBlocks = 5;
constexpr unsigned kDenseBlocks = 3;

/// Takes half a unit out of shared memory, which is zero afterwards.
__device__ Groups take_sums(UnitShared& shared, std::uint32_t half) {
    Groups sums;
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
        sums.of[part] = shared.sums[group_of(half, part)];
        shared.sums[group_of(half, part)] = float4{};
    }
    return sums;
}

__device__ void put_sums(UnitShared& shared, std::uint32_t half, const Groups& sums) {
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) shared.sums[group_of(half, part)] = sums.of[part];
}

/// Sums of so many nodes' signs become the sign that has the larger weight.
__device__ void count_votes(std::uint32_t votes, Groups& inout_sums) {
    const float limit = vote_limit(votes);
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerHalf; ++part) {
        float4& sum = inout_sums.of[part];
        sum = {vote_of(sum.x, limit), vote_of(sum.y, limit), vote_of(sum.z, limit), vote_of(sum.w, limit)};
    }
}

/// Sums of a chunk with lists between dense payloads, in shared memory.
template <bool kMayBeExponential>
__device__ void sum_mixed(const DecodeTables& tables, const DeviceChunk& chunk, const Unit& unit, UnitShared& shared,
                          Tally& inout_tally) {
    for (std::uint32_t place = chunk.first_payload; place < chunk.first_payload + chunk.payloads; ++place) {
        if (tables.payloads[place].is_list) {
            add_list<kMayBeExponential>(tables, place, unit, shared, inout_tally);
            continue;
        }
        for (std::uint32_t half = 0; half < kHalves; ++half) {
            Groups sums = take_sums(shared, half);
            add_dense<kMayBeExponential>(tables, place, unit, half, sums, inout_tally);
            put_sums(shared, half, sums);
        }
        __syncwarp();
    }
    shared.touched[lane_of_thread()] = 0;  // every element is
}

template <bool kMayBeExponential, bool kHasBase>
__device__ void average_dense(const DecodeTables& tables, const DeviceChunk& chunk, const DeviceTensor& tensor,
                              const Unit& unit, UnitShared& shared, Tally& inout_tally) {
    if (chunk.has_lists) sum_mixed<kMayBeExponential>(tables, chunk, unit, shared, inout_tally);
    for (std::uint32_t half = 0; half < kHalves; ++half) {
        Groups sums{};
        if (chunk.has_lists)
            sums = take_sums(shared, half);
        else
            for (std::uint32_t source = 0; source < chunk.payloads; ++source)
                add_dense<kMayBeExponential>(tables, chunk.first_payload + source, unit, half, sums, inout_tally);
        if (chunk.votes > 0) count_votes(chunk.votes, sums);
        if constexpr (kHasBase) add_base(tables, chunk, unit, half, sums);
        tally_groups(chunk, unit, half, sums, inout_tally);
        write_results(tables, chunk, unit, half, sums, false);
    }
    static_cast<void>(note_touched(tables, chunk, tensor, unit, true));
    if (lane_of_thread() == 0) inout_tally.touched += unit.elements;
    __syncwarp();
}

template <bool kMayBeExponential>
__device__ void average_lists(const DecodeTables& tables, const DeviceChunk& chunk, const DeviceTensor& tensor,
                              const Unit& unit, UnitShared& shared, Tally& inout_tally) {
    const bool is_touched = chunk.has_direct ? sum_lists<kMayBeExponential>(tables, chunk, unit, shared, inout_tally)
                                             : sum_packed(tables, chunk, unit, shared, inout_tally);
    const bool is_changed = note_touched(tables, chunk, tensor, unit, is_touched);
    __syncwarp();  // the tally has read the sums
    for (std::uint32_t half = 0; half < kHalves; ++half) {
        Groups sums{};
        if (is_touched) sums = take_sums(shared, half);
        write_results(tables, chunk, unit, half, sums, !is_changed);
    }
    __syncwarp();
}

template <bool kHasDense, bool kMayBeExponential, bool kHasBase>
__global__ void __launch_bounds__(kThreads, kHasDense ? kDenseBlocks : kListBlocks)
    average_units(DecodeTables tables, DecodeRound round) {
    __shared__ UnitShared all_shared[kWarps];
    const std::uint32_t warp = threadIdx.x / kLanes;
    UnitShared& shared = all_shared[warp];
    for (std::uint32_t half = 0; half < kHalves; ++half) put_sums(shared, half, Groups{});
    shared.touched[lane_of_thread()] = 0;
    __syncwarp();
    const auto share = [&](std::uint64_t block) {
        return round.first_unit + static_cast<std::uint32_t>(block * round.units / gridDim.x);
    };
    // The block's warps take turns, so that they write one stretch of memory together.
    std::uint32_t unit = share(blockIdx.x) + warp;
    const std::uint32_t end = share(blockIdx.x + 1ULL);
    if (unit >= end) return;
    std::uint32_t place = find_chunk(tables, round, unit);
    Tally tally;
    for (; unit < end; ++place) {
        const DeviceChunk& chunk = tables.chunks[place];
        const std::uint32_t chunk_end = min(end, chunk.first_unit + chunk.units);
        if (unit >= chunk_end) continue;
        const DeviceTensor tensor = tables.tensors[chunk.tensor];
        const bool is_good = tables.reports[chunk.tensor].has_bad_list == 0;
        for (; unit < chunk_end; unit += kWarps) {
            if (!is_good) continue;
            const std::uint32_t in_chunk = unit - chunk.first_unit;
            const Unit one{in_chunk, min(kUnitElements, chunk.elements - in_chunk * kUnitElements)};
            if constexpr (kHasDense)
                average_dense<kMayBeExponential, kHasBase>(tables, chunk, tensor, one, shared, tally);
            else
                average_lists<kMayBeExponential>(tables, chunk, tensor, one, shared, tally);
        }
        flush(tables.reports[chunk.tensor], tally);
    }
}

auto kernel_of(const DecodeRound& round) {
    if (round.has_base)
        return round.has_exponential ? &average_units<true, true, true> : &average_units<true, false, true>;
    if (round.has_dense)
        return round.has_exponential ? &average_units<true, true, false> : &average_units<true, false, false>;
    return round.has_exponential ? &average_units<false, true, false> : &average_units<false, false, false>;
}

cudaError_t blocks_of(const void* kernel, int processors, unsigned& ret_blocks) {
    int per_processor = 0;
    const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, kThreads, 0);
    ret_blocks = static_cast<unsigned>(processors * per_processor);
    return error;
}

}  // namespace

int launch_average_units(const DecodeTables& tables, const DecodeRound& round, const AverageBlocks& blocks,
                         void* stream) {
    if (round.is_rotated) return launch_average_rotated(tables, round, blocks, stream);
    const unsigned resident = round.has_dense ? blocks.dense : blocks.lists;
    const unsigned useful = (round.units + kWarps - 1) / kWarps;
    const unsigned used = useful < resident ? useful : resident;
    return launch(kernel_of(round), {used, kThreads}, static_cast<cudaStream_t>(stream), tables, round);
}

int find_average_blocks(unsigned multiprocessors, AverageBlocks& ret_blocks) {
    int device = 0;
    int processors = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (multiprocessors > 0 && static_cast<unsigned>(processors) > multiprocessors)
        processors = static_cast<int>(multiprocessors);
    if (error == cudaSuccess)
        error =
            blocks_of(reinterpret_cast<const void*>(&average_units<false, false, false>), processors, ret_blocks.lists);
    if (error == cudaSuccess)
        error =
            blocks_of(reinterpret_cast<const void*>(&average_units<true, false, false>), processors, ret_blocks.dense);
    ret_blocks.rotated = static_cast<unsigned>(processors) * kRotatedBlocks;
    return error;
}

}  // namespace gradsieve::codec::cuda

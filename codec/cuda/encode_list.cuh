// The dense pass of the pipelines that send lists: a block reads a tile's samples and state, writes the other
// generation as if nothing were sent, and lists what the selector picks. Then one warp sends the list and corrects the
// state of what it sent, while the tile's lines are still in the cache; the block that finishes a chunk's last tile
// codes the chunk. Where the tensor must be known first (top-k, pow2(scope=tensor)) the list waits in its slot.
#pragma once

#include "codec/cuda/chunk_code.cuh"
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/tile_observe.cuh"
#include "codec/cuda/tile_send.cuh"

namespace gradsieve::codec::cuda {

/// Vectors of each array that a thread loads before it looks at them: many samples fill the registers by themselves.
template <unsigned kSamples>
inline constexpr unsigned kVectorsAhead = kSamples >= 4 ? 1 : 2;

template <bool kHasVariance>
struct ListingShared {
    TileWork works[2];
    std::uint16_t indices[kTile];
    float values[kTile];
    float variances[kHasVariance ? kTile : 1];  ///< hybrid only
    std::uint32_t counts[kWarps];
    std::uint32_t codes_chunk;
    CodeShared code;
};

/// Appends a vector's picked elements to the warp's list; returns the warp's new count. bit c of `mask`: element c.
template <typename Shared>
__device__ inline std::uint32_t append_vector(Shared& shared, const TileWork& work, std::uint32_t count,
                                              std::uint32_t mask, std::uint32_t local, const Vector& r,
                                              const Vector& v) {
    std::uint32_t lanes[4];
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) lanes[c] = __ballot_sync(~0U, (mask >> c) & 1U);
    if ((lanes[0] | lanes[1] | lanes[2] | lanes[3]) == 0) return count;
    const std::uint32_t below = (1U << (threadIdx.x % 32)) - 1U;
    std::uint32_t at = (threadIdx.x / 32) * kWarpElements + count;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) at += __popc(lanes[c] & below);
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
        if (((mask >> c) & 1U) == 0) continue;
        shared.indices[at] = static_cast<std::uint16_t>(local + c);
        shared.values[at] = r.at[c];
        if (sizeof(shared.variances) > sizeof(float) && work.plan.is_hybrid != 0) shared.variances[at] = v.at[c];
        ++at;
    }
    return count + __popc(lanes[0]) + __popc(lanes[1]) + __popc(lanes[2]) + __popc(lanes[3]);
}

/// Which elements of a vector passed the gate, as bits of a word that eight lanes share.
__device__ inline void store_gate(const EncodeRound& round, const TileWork& work, std::uint32_t mask,
                                  std::uint32_t local) {
    std::uint32_t word = mask << (4 * (threadIdx.x % 8));
#pragma unroll
    for (unsigned lanes = 4; lanes > 0; lanes /= 2) word |= __shfl_xor_sync(~0U, word, lanes);
    if (threadIdx.x % 8 == 0) round.gate_words[std::size_t{work.slot} * (kTile / 32) + local / 32] = word;
}

/// Reads and writes this thread's elements of the tile and lists them; returns the warp's count.
template <VarianceSource kSource, unsigned kSamples, typename Shared>
__device__ inline std::uint32_t pass_tile(const EncodeRound& round, const TileWork& work, Shared& shared) {
    constexpr bool kHasVariance = kSource != VarianceSource::kNone;
    constexpr unsigned kAhead = kVectorsAhead<kSamples>;
    const TensorPlan& plan = work.plan;
    float* scratch = round.sample_scratch + std::size_t{blockIdx.x} * round.scratch_samples * kTileThreads * 4;
    std::uint32_t count = 0;
    bool is_finite = true;
#pragma unroll 1
    for (unsigned first = 0; first < kVectors; first += kAhead) {
        Vector r[kAhead];
        Vector v[kAhead];
        Observed<kAhead> seen;
        load_floats(work, plan.residual_in, first, r);
        if constexpr (kHasVariance) load_floats(work, plan.variance_in, first, v);
        observe<kSource, kSamples, kAhead>(work, scratch, first, seen, is_finite);
#pragma unroll
        for (unsigned j = 0; j < kAhead; ++j) {
            const VectorPlace place = place_of(work, first + j);
            std::uint32_t mask = 0;
            Vector decayed;
#pragma unroll
            for (unsigned c = 0; c < 4; ++c) {
                const float residual = element::carried(plan.rescale, r[j].at[c], seen.mean[j].at[c]);
                r[j].at[c] = residual;
                is_finite = is_finite && element::is_finite(residual);
                bool is_picked = c < place.valid;
                if constexpr (kHasVariance) {
                    const float inc = increment<kSource>(plan, seen.mean[j].at[c], seen.noise[j].at[c]);
                    const float variance = element::saturated(element::carried(plan.rescale_squared, v[j].at[c], inc));
                    v[j].at[c] = variance;
                    decayed.at[c] = plan.zeta * variance;
                    is_picked = is_picked && element::passes_variance_test(residual, plan.ratio_floor, variance) &&
                                element::magnitude(residual) > plan.least_magnitude;
                }
                mask |= is_picked ? 1U << c : 0U;
            }
            store_vector(work, plan.residual_out, first + j, r[j]);
            if constexpr (kHasVariance) {
                store_vector(work, plan.variance_out, first + j, decayed);
                if (round.gate_words != nullptr) store_gate(round, work, mask, place.local);
            }
#pragma unroll
            for (unsigned c = 0; c < 4; ++c)
                if (element::magnitude_bits(r[j].at[c]) < plan.magnitude_floor) mask &= ~(1U << c);
            count = append_vector(shared, work, count, mask, place.local, r[j], v[j]);
        }
    }
    if (!is_finite) report_trouble(work, round.tensor_states[round.chunks[work.chunk].tensor]);
    return count;
}

/// Leaves a tile's candidates in its slot until the tensor is decided; one warp.
__device__ inline void keep_list(const EncodeRound& round, const TileWork& work, const SegmentedList& list,
                                 const TileTarget& target) {
    std::uint32_t largest = 0;
    for (std::uint32_t entry = threadIdx.x % 32; entry < list.count; entry += 32) {
        const std::uint32_t cell = list.cell(entry);
        const float value = list.values[cell];
        target.indices[entry] = list.indices[cell];
        reinterpret_cast<float*>(target.values)[entry] = value;
        largest = max(largest, element::magnitude_bits(value));
    }
    largest = __reduce_max_sync(~0U, largest);
    if (threadIdx.x % 32 != 0) return;
    target.info->count = list.count;
    if (list.count == 0) return;
    TensorState& state = round.tensor_states[round.chunks[work.chunk].tensor];
    atomicAdd(&state.listed, list.count);
    atomicMax(&state.largest, largest);
}

/// What becomes of a tile's list; one warp. Whether the tile was its chunk's last, so that the chunk is to be coded.
template <typename Shared>
__device__ inline bool end_tile(const EncodeRound& round, const TileWork& work, const Shared& shared) {
    SegmentedList list{shared.indices, shared.values, shared.variances, {}, 0};
#pragma unroll
    for (unsigned warp = 0; warp < kWarps; ++warp) {
        list.begins[warp] = list.count;
        list.count += shared.counts[warp];
    }
    const TileTarget target = tile_target(round, work.plan, work.slot, work.first);
    if (work.plan.is_deferred != 0) {
        keep_list(round, work, list, target);
        return false;
    }
    if (threadIdx.x % 32 == 0) wait_for_slot(round, work);
    __syncwarp();
    send_list(work.plan, list, target, 0);
    bool is_last = false;
    if (threadIdx.x % 32 == 0) is_last = finish_part(round.chunk_states[work.chunk], round.chunks[work.chunk].tiles);
    return is_last;
}

template <VarianceSource kSource, unsigned kSamples>
__global__ void __launch_bounds__(kTileThreads, 4) list_tiles(const __grid_constant__ EncodeRound round) {
    __shared__ ListingShared<kSource != VarianceSource::kNone> shared;
    const unsigned warp = threadIdx.x / 32;
    if (warp == 0) take_tile(round, shared.works[0]);
    __syncthreads();
    for (unsigned turn = 0; shared.works[turn].tile != kNothing; turn ^= 1U) {
        const TileWork& work = shared.works[turn];
        const std::uint32_t count = pass_tile<kSource, kSamples>(round, work, shared);
        if (threadIdx.x % 32 == 0) shared.counts[warp] = count;
        __syncthreads();
        if (warp == 1) take_tile(round, shared.works[turn ^ 1U]);
        if (warp == 0) {
            const bool codes_chunk = end_tile(round, work, shared);
            if (threadIdx.x == 0) shared.codes_chunk = codes_chunk ? 1U : 0U;
        }
        __syncthreads();
        if (shared.codes_chunk == 0) continue;
        code_chunk(round, work.chunk, shared.code);
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicExch(&round.chunk_states[work.chunk].is_coded, 1U);
        }
    }
}

}  // namespace gradsieve::codec::cuda

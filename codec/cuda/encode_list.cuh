// The dense pass of the pipelines that send lists: a warp reads a tile's samples and state, writes the other generation
// as if nothing were sent, and lists what the selector picks in the tile's slot. Then it sends the list and corrects
// the state of what it sent, while the tile's lines are still in the cache. Where the tensor must be known first
// (top-k, pow2(scope=tensor)) the list waits in its slot. No warp waits for another.
#pragma once

#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/tile_observe.cuh"
#include "codec/cuda/tile_send.cuh"

namespace gradsieve::codec::cuda {

/// Vectors of each array that a lane loads before it looks at them: many samples fill the registers by themselves.
template <unsigned kSamples>
inline constexpr unsigned kVectorsAhead = kSamples >= 4 ? 1 : 2;

/// Blocks of a multiprocessor that the registers have to suffice for: as many as hold the loads under way.
template <VarianceSource kSource, unsigned kSamples>
inline constexpr unsigned kListBlocks = kSamples == 1 && kSource != VarianceSource::kSecondMoment ? 4 : 3;

/// A tile's list as it grows; the same in every lane, but for `largest`.
struct GrowingList {
    std::uint16_t* indices;
    float* kept;  ///< r while the list waits, v for the hybrid, by position; null: nothing
    std::uint32_t count;
    std::uint32_t largest;  ///< magnitude bits that this lane listed
};

/// Appends a vector's picked elements. bit c of `mask`: element c.
__device__ inline void append_vector(const TileWork& work, std::uint32_t mask, std::uint32_t local, const Vector& r,
                                     const Vector& v, GrowingList& inout_list) {
    std::uint32_t lanes[4];
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) lanes[c] = __ballot_sync(~0U, (mask >> c) & 1U);
    if ((lanes[0] | lanes[1] | lanes[2] | lanes[3]) == 0) return;
    const std::uint32_t below = (1U << (threadIdx.x % 32)) - 1U;
    std::uint32_t at = inout_list.count;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) at += __popc(lanes[c] & below);
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
        if (((mask >> c) & 1U) == 0) continue;
        inout_list.indices[at] = static_cast<std::uint16_t>(local + c);
        if (inout_list.kept != nullptr) inout_list.kept[at] = work.plan.is_hybrid != 0 ? v.at[c] : r.at[c];
        inout_list.largest = max(inout_list.largest, element::magnitude_bits(r.at[c]));
        ++at;
    }
    inout_list.count += __popc(lanes[0]) + __popc(lanes[1]) + __popc(lanes[2]) + __popc(lanes[3]);
}

/// Which elements of a vector passed the gate, as bits of a word that eight lanes share.
__device__ inline void store_gate(const EncodeRound& round, const TileWork& work, std::uint32_t mask,
                                  std::uint32_t local) {
    std::uint32_t word = mask << (4 * (threadIdx.x % 8));
#pragma unroll
    for (unsigned lanes = 4; lanes > 0; lanes /= 2) word |= __shfl_xor_sync(~0U, word, lanes);
    if (threadIdx.x % 8 == 0) round.gate_words[std::size_t{work.tile} * (kTile / 32) + local / 32] = word;
}

/// Reads and writes the tile and lists it.
template <VarianceSource kSource, unsigned kSamples>
__device__ inline GrowingList pass_tile(const EncodeRound& round, const TileWork& work, const TileTarget& target) {
    constexpr bool kHasVariance = kSource != VarianceSource::kNone;
    constexpr unsigned kAhead = kVectorsAhead<kSamples>;
    const TensorPlan& plan = work.plan;
    float* scratch = round.sample_scratch + std::size_t{blockIdx.x} * round.scratch_samples * kTileThreads * 4;
    const bool keeps = plan.is_deferred != 0 || plan.is_hybrid != 0;
    GrowingList list{target.indices, keeps ? reinterpret_cast<float*>(target.values) : nullptr, 0, 0};
    const unsigned vectors = (work.elements + 127) / 128;
    bool is_finite = true;
#pragma unroll 1
    for (unsigned first = 0; first < vectors; first += kAhead) {
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
            append_vector(work, mask, place.local, r[j], v[j], list);
        }
    }
    if (!is_finite) report_trouble(work, round.tensor_states[round.chunks[work.chunk].tensor]);
    __syncwarp();  // every lane sees the others' writes
    list.largest = __reduce_max_sync(~0U, list.largest);
    return list;
}

/// What becomes of a tile's list.
__device__ inline void end_tile(const EncodeRound& round, const TileWork& work, const GrowingList& list,
                                const TileTarget& target) {
    if (work.plan.is_deferred == 0) {
        const FreshList fresh{list.indices, target.residual_out, list.kept, list.count, list.largest};
        return send_list(work.plan, fresh, target, 0);
    }
    if (threadIdx.x % 32 != 0) return;
    target.info->count = list.count;
    if (list.count == 0) return;
    TensorState& state = round.tensor_states[round.chunks[work.chunk].tensor];
    atomicAdd(&state.listed, list.count);
    atomicMax(&state.largest, list.largest);
}

template <VarianceSource kSource, unsigned kSamples>
__global__ void __launch_bounds__(kTileThreads, (kListBlocks<kSource, kSamples>))
    list_tiles(const __grid_constant__ EncodeRound round) {
    __shared__ TileWork works[kWarps];
    TileWork& work = works[threadIdx.x / 32];
    for_each_tile(round, work, [&] {
        const TileTarget target = tile_target(round, work.plan, work.tile, work.first);
        const GrowingList list = pass_tile<kSource, kSamples>(round, work, target);
        end_tile(round, work, list, target);
    });
}

}  // namespace gradsieve::codec::cuda

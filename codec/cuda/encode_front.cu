// What happens before the dense pass and after the lists are cut: momentum (codec/stages/momentum.hpp); and last, to
// what was not sent: the low-pass (codec/low_pass.hpp). A tile for a block, or a tile for a warp of a group's block.
#include "codec/cuda/front_tile.cuh"
#include "codec/cuda/tile_group.cuh"

namespace gradsieve::codec::cuda {
namespace {

/// u is not finite there: keeps the least (element, sample) of the tensor, sample 0 if all samples are finite. The
/// caller leaves +0, so that the pass does not name its own sample, which is u.
static __device__ __noinline__ void report_front_trouble(const FrontTile& work, std::uint32_t element) {
    std::uint32_t bad = 0;
    for (std::uint32_t sample = 0; sample < work.front->sample_count; ++sample) {
        if (element::is_finite(load_sample_at(work.samples[sample], element))) continue;
        bad = sample;
        break;
    }
    atomicMin(reinterpret_cast<unsigned long long*>(&work.state->non_finite), (std::uint64_t{element} << 16U) | bad);
}

__device__ inline float momentum_after(const FrontTile& work, std::uint32_t element, float before, float mean) {
    const float after = element::carried(work.front->factor, before, mean);
    if (element::is_finite(after)) return after;
    report_front_trouble(work, element);
    return 0.0F;
}

__device__ inline void accumulate_four(const FrontTile& work, std::uint32_t element) {
    const Vector before = load_four(work.front->momentum_in + element);
    const Vector mean = mean_of_four(work, element, work.clip);
    float after[4];
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) after[c] = momentum_after(work, element + c, before.at[c], mean.at[c]);
    *reinterpret_cast<float4*>(work.front->momentum_out + element) =
        make_float4(after[0], after[1], after[2], after[3]);
}

__device__ inline void accumulate_one(const FrontTile& work, std::uint32_t element) {
    const float mean = mean_of_one(work, element, work.clip);
    work.front->momentum_out[element] = momentum_after(work, element, work.front->momentum_in[element], mean);
}

__global__ void __launch_bounds__(kTileThreads) accumulate_momentum(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    const FrontTile work = front_tile(round, round.first_tile + blockIdx.x);
    if (work.front->momentum_out == nullptr) return;
    if (work.is_wide) {
#pragma unroll
        for (std::uint32_t at = threadIdx.x * 4; at < kTile; at += kTileThreads * 4)
            accumulate_four(work, work.first + at);
        return;
    }
    for (std::uint32_t at = threadIdx.x; at < work.elements; at += kTileThreads) accumulate_one(work, work.first + at);
}

__global__ void __launch_bounds__(kTileThreads) clear_momentum(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    const GroupWork work = group_work(round, blockIdx.x);
    const FrontPlan& front = round.fronts[work.tensor];
    if (front.is_masked == 0) return;
    for (std::uint32_t number = threadIdx.x / 32; number < work.tiles; number += kWarps) {
        const GroupTile place = group_tile(round, work, number);
        const std::uint32_t sent = round.tiles[place.tile].count;
        const std::uint16_t* indices = round.slot_indices + std::size_t{place.tile} * kTile;
        for (std::uint32_t at = threadIdx.x % 32; at < sent; at += 32)
            front.momentum_out[place.first + indices[at]] = 0.0F;
    }
}

__global__ void __launch_bounds__(kTileThreads) filter_residual(const __grid_constant__ EncodeRound round) {
    begin_kernel();
    const FrontTile work = front_tile(round, blockIdx.x);
    const float keep = work.front->keep;
    const float take = work.front->take;
    if (take == 0.0F) return;
    const float* before = work.plan->residual_in + work.first;
    float* after = work.plan->residual_out + work.first;
    if (work.is_wide) {
#pragma unroll
        for (std::uint32_t at = threadIdx.x * 4; at < kTile; at += kTileThreads * 4) {
            const Vector old = load_four(before + at);
            float4* left = reinterpret_cast<float4*>(after + at);
            *left = make_float4(element::low_passed(keep, old.at[0], take, left->x),
                                element::low_passed(keep, old.at[1], take, left->y),
                                element::low_passed(keep, old.at[2], take, left->z),
                                element::low_passed(keep, old.at[3], take, left->w));
        }
        return;
    }
    for (std::uint32_t at = threadIdx.x; at < work.elements; at += kTileThreads)
        after[at] = element::low_passed(keep, before[at], take, after[at]);
}

}  // namespace

KernelHandle front_kernel() noexcept { return &accumulate_momentum; }
KernelHandle mask_kernel() noexcept { return &clear_momentum; }
KernelHandle low_pass_kernel() noexcept { return &filter_residual; }

}  // namespace gradsieve::codec::cuda

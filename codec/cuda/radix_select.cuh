// The k-th magnitude, found from counts of magnitudes by their leading bits: which bits a level looks at, and which bin
// holds the wanted-th largest. Integer counts only, whose order cannot show. Device code only.
#pragma once

#include "codec/cuda/block_scan.cuh"
#include "codec/cuda/tile_group.cuh"

namespace gradsieve::codec::cuda {

/// Bits of a magnitude that a level looks at; the levels before fixed what is above.
template <unsigned kLevel>
struct Level {
    static constexpr unsigned kWidth = kLevel == 0 ? 11 : 10;
    static constexpr unsigned kShift = kLevel == 0 ? 20 : kLevel == 1 ? 10 : 0;
    static constexpr std::uint32_t kBins = 1U << kWidth;
};
static_assert(kSelectLevels == 3 && Level<0>::kBins <= kHistogramBins);

/// Finds the bin that holds the wanted-th largest, if one does, and has one thread call `found(bin, how many of it are
/// wanted, its count)`. `take_count(bin)` is asked once for each bin; `uncounted(counted)`: how many lie above all
/// bins. A whole block; `wanted` was read before any thread came here.
template <std::uint32_t kBins, typename TakeCount, typename Uncounted, typename Found>
__device__ void find_bin(std::uint32_t wanted, ScanShared<kTileThreads>& shared, TakeCount take_count,
                         Uncounted uncounted, Found found) {
    constexpr std::uint32_t kPerThread = kBins / kTileThreads;
    const std::uint32_t highest = kBins - 1 - threadIdx.x * kPerThread;
    std::uint32_t counts[kPerThread];
    std::uint32_t sum = 0;
#pragma unroll
    for (unsigned place = 0; place < kPerThread; ++place) {
        counts[place] = take_count(highest - place);
        sum += counts[place];
    }
    std::uint32_t total = 0;
    std::uint32_t above = scan_block(sum, Sum{}, shared, total);
    above += uncounted(total);
    if (above >= wanted || above + sum < wanted) return;
#pragma unroll
    for (unsigned place = 0; place < kPerThread; ++place) {
        if (above < wanted && above + counts[place] >= wanted) found(highest - place, wanted - above, counts[place]);
        above += counts[place];
    }
}

/// A level's bin of the wanted-th largest.
template <unsigned kLevel, typename TakeCount>
__device__ void pick_bin(TensorState& state, std::uint32_t wanted, ScanShared<kTileThreads>& shared,
                         TakeCount take_count) {
    find_bin<Level<kLevel>::kBins>(
        wanted, shared, take_count, [](std::uint32_t) { return 0U; },
        [&state](std::uint32_t bin, std::uint32_t of_bin, std::uint32_t count) {
            state.prefix = (state.prefix << Level<kLevel>::kWidth) | bin;
            state.wanted = of_bin;
            state.ties = count;
        });
}

}  // namespace gradsieve::codec::cuda

// How a dense pass goes through its tiles: one warp of the block fetches, some tiles ahead, and the others look. A
// tile's arrays come into shared memory by asynchronous copies, so that device memory is busy while the block computes
// and waits at barriers. Device code only.
#pragma once

#include "codec/cuda/async_copy.cuh"
#include "codec/cuda/early_start.cuh"
#include "codec/cuda/encode_kernels.hpp"
#include "codec/cuda/tile_work.cuh"

namespace gradsieve::codec::cuda {

/// Vectors of four elements of a tile that a thread looks at: consecutive ones of its warp.
inline constexpr unsigned kThreadVectors = kTile / 4 / kPassThreads;
inline constexpr std::uint32_t kArrayBytes = kTile * sizeof(float);
inline constexpr unsigned kWorkSlots = 8;  ///< tiles that something is known of
static_assert(kWorkSlots > kMostStages + 1);

/// Arrays that come into shared memory for each tile.
inline constexpr unsigned kMostArrays = 4;
struct ArrayList {
    const void* from[kMostArrays];
    std::uint32_t bytes[kMostArrays];
};

/// What the pass's warps share. Lies before the stages.
struct PipeShared {
    Gate full[kMostStages];   ///< the stage's tile is there
    Gate empty[kMostStages];  ///< nobody needs what is in it
    TileWork works[kWorkSlots];
};

/// One tile under a block's eyes.
struct TileStage {
    const TileWork& work;
    std::byte* arrays;     ///< kArrayBytes each; filled if the tile is wide
    Gate& empty;           ///< wants every looking thread's arrival, once that thread needs the arrays no longer
    std::uint32_t parity;  ///< of the phase of `empty` that ends when all have arrived
    std::uint32_t number;  ///< of the block's tiles
};

/// Where the stages lie, and how far apart.
struct StageRoom {
    std::uint32_t begin;
    std::uint32_t bytes;
    __device__ std::byte* of(unsigned stage) const { return dynamic_shared() + begin + stage * bytes; }
};

/// Where the stages begin in dynamic shared memory, behind what lies at its beginning.
template <typename Shared>
inline constexpr std::uint32_t kStagesBegin = (sizeof(Shared) + 127) / 128 * 128;
/// The j-th vector of those that a warp looks at, in the tile.
__device__ inline unsigned vector_number(unsigned part, unsigned j) { return part * kThreadVectors + j; }

/// Before anything else; every thread of the block. `lookers`: threads that arrive when they need a tile's arrays no
/// longer. All that wait for tiles are among them: who does not keep a stage could come back two tiles late, and find
/// its gate in the phase that it waits to see the end of.
__device__ inline void open_pipe(PipeShared& pipe, unsigned stages, unsigned lookers) {
    if (threadIdx.x == 0) {
        for (unsigned stage = 0; stage < stages; ++stage) {
            open_gate(pipe.full[stage], kCopyArrivals);
            open_gate(pipe.empty[stage], lookers);
        }
        publish_gates();
    }
    __syncthreads();
}

/// Where in the ring of stages somebody is.
struct RingPlace {
    unsigned stage = 0;
    std::uint32_t parity = 0;
    __device__ void advance(unsigned stages) {
        if (++stage < stages) return;
        stage = 0;
        parity ^= 1U;
    }
};

/// The fetching warp. `arrays_of(work)`: what to fetch of a wide tile.
template <unsigned kArrays, typename ArraysOf>
__device__ inline void fetch_tiles(const EncodeRound& round, PipeShared& pipe, const StageRoom& room,
                                   ArraysOf arrays_of) {
    RingPlace place;
    TileFinder finder(round);
    bool has_said = false;
    std::uint32_t next = take_ticket(round);
    for (std::uint32_t number = 0;; ++number) {
        const std::uint32_t tile = __shfl_sync(~0U, next, 0);
        TileWork& work = pipe.works[number % kWorkSlots];
        Gate& full = pipe.full[place.stage];
        const bool is_over = tile >= round.end_tile;
        if (!is_over) {
            next = take_ticket(round);  // its answer comes while this tile is fetched
            finder.find(tile, work);
        }
        await(pipe.empty[place.stage], place.parity ^ 1U);
        if (is_over) {  // said twice, for a warp that sits out the first time
            if (threadIdx.x % 32 == 0) work.tile = kNothing;
            __syncwarp();
            end_copies(full);
            if (has_said) return;
            has_said = true;
            place.advance(round.stages);
            continue;
        }
        if (work.is_wide != 0) {
            const ArrayList list = arrays_of(work);
            std::uint32_t bytes = 0;
#pragma unroll
            for (unsigned array = 0; array < kArrays; ++array) bytes += list.bytes[array];
            announce_copies(full, bytes);
            std::byte* to = room.of(place.stage);
#pragma unroll
            for (unsigned array = 0; array < kArrays; ++array)
                if (list.bytes[array] > 0)
                    copy_async(to + array * kArrayBytes, list.from[array], list.bytes[array], full);
        }
        end_copies(full);
        place.advance(round.stages);
    }
}

/// The looking warps, of which kPassWarps look at each tile. `look(stage)`: looks at a tile, and sees to each thread's
/// arrival at its gate; true: this warp sits out the next one.
template <typename Look>
__device__ inline void look_at_tiles(const EncodeRound& round, PipeShared& pipe, const StageRoom& room, Look look) {
    RingPlace place;
    bool sits_out = threadIdx.x / 32 == kPassWarps;  // one that is too many for the first tile
    for (std::uint32_t number = 0;; ++number) {
        if (!sits_out) {
            await(pipe.full[place.stage], place.parity);
            const TileWork& work = pipe.works[number % kWorkSlots];
            if (work.tile == kNothing) return;
            sits_out = look(TileStage{work, room.of(place.stage), pipe.empty[place.stage], place.parity, number});
        } else {
            sits_out = false;  // its gate may have gone on by now
        }
        place.advance(round.stages);
    }
}

}  // namespace gradsieve::codec::cuda

// Copies into shared memory that run while the block works on, and what its warps wait at: gates, which count arrivals
// and the bytes of copies under way (mbarriers), and a barrier of the block's first threads. On sm_90 one thread asks
// the copy engine for whole arrays; before that the lanes of a warp copy vectors. On the emulated card a copy is made
// when somebody waits for it, and what is read before that is not a number. Device code only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#if defined(GRADSIEVE_EMULATED_CUDA)
#include <cstring>
#include <vector>
#endif

namespace gradsieve::codec::cuda {

/// Most dynamic shared memory that any kernel asks for.
inline constexpr std::size_t kMostSharedBytes = std::size_t{227} << 10U;
inline constexpr unsigned kMostBarriers = 16;
/// Arrivals that a copying warp makes at its gate: every lane's, which may have written to shared memory as well.
inline constexpr std::uint32_t kCopyArrivals = 32;

/// In shared memory. What wait at it are phases, which end when as many have arrived as it was opened for, and the
/// bytes that were announced have come.
struct Gate {
#if defined(GRADSIEVE_EMULATED_CUDA)
    std::uint32_t wanted, missing, phase;
#else
    std::uint64_t word;  ///< an mbarrier
#endif
};

#if defined(GRADSIEVE_EMULATED_CUDA)

inline std::byte* dynamic_shared() {
    alignas(128) static thread_local std::byte memory[kMostSharedBytes];
    return memory;
}

struct CopyUnderWay {
    Gate* gate;
    std::byte* to;
    const std::byte* from;
    std::uint32_t bytes;
};
inline std::vector<CopyUnderWay>& copies_under_way() {
    static thread_local std::vector<CopyUnderWay> copies;
    return copies;
}
inline void open_gate(Gate& gate, std::uint32_t arrivals) { gate = {arrivals, arrivals, 0}; }
inline void publish_gates() {}
inline void arrive(Gate& gate) {
    if (--gate.missing > 0) return;
    gate.missing = gate.wanted;
    ++gate.phase;
}
inline void await(Gate& gate, std::uint32_t parity) {
    while (gate.phase % 2 == parity) gradsieve::emulated::pause_fiber();
    std::erase_if(copies_under_way(), [&gate](const CopyUnderWay& copy) {
        if (copy.gate != &gate) return false;
        std::memcpy(copy.to, copy.from, copy.bytes);
        return true;
    });
}
inline void announce_copies(Gate&, std::uint32_t) {}
inline void copy_async(void* to, const void* from, std::uint32_t bytes, Gate& gate) {
    if (threadIdx.x % 32 != 0) return;
    std::memset(to, 0xFF, bytes);
    copies_under_way().push_back({&gate, static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes});
}
inline void end_copies(Gate& gate) { arrive(gate); }
inline void before_async_writes() {}

struct Barrier {
    unsigned arrived, generation;
};
inline Barrier& barrier_of(unsigned number) {
    static thread_local Barrier barriers[kMostBarriers];
    return barriers[number];
}
inline void arrive(unsigned number, unsigned threads) {
    Barrier& barrier = barrier_of(number);
    if (++barrier.arrived < threads) return;
    barrier.arrived = 0;
    ++barrier.generation;
}
inline void meet(unsigned number, unsigned threads) {
    const Barrier& barrier = barrier_of(number);
    const unsigned own = barrier.generation;
    arrive(number, threads);
    while (barrier.generation == own) gradsieve::emulated::pause_fiber();
}

#else

__device__ inline std::byte* dynamic_shared() {
    extern __shared__ __align__(128) unsigned char memory[];
    return reinterpret_cast<std::byte*>(memory);
}
__device__ inline std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void open_gate(Gate& gate, std::uint32_t arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&gate)), "r"(arrivals) : "memory");
}
/// Waits for the phase of that parity to end; a new gate is in phase 0.
__device__ inline void await(Gate& gate, std::uint32_t parity) {
    std::uint32_t is_open = 0;
    do {
#if __CUDA_ARCH__ >= 900
        asm volatile("{ .reg .pred open; mbarrier.try_wait.parity.shared.b64 open, [%1], %2; selp.u32 %0, 1, 0, open; }"
                     : "=r"(is_open)
                     : "r"(shared_address(&gate)), "r"(parity)
                     : "memory");
#else
        asm volatile(
            "{ .reg .pred open; mbarrier.test_wait.parity.shared.b64 open, [%1], %2; selp.u32 %0, 1, 0, open; }"
            : "=r"(is_open)
            : "r"(shared_address(&gate)), "r"(parity)
            : "memory");
#endif
    } while (is_open == 0);
}
__device__ inline void arrive(Gate& gate) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(&gate))
                 : "memory");
}

#if __CUDA_ARCH__ >= 900
/// Gates that were opened are seen by the copy engine.
__device__ inline void publish_gates() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/// How many bytes the copies up to `end_copies` have in all. A whole warp, as the next two.
__device__ inline void announce_copies(Gate& gate, std::uint32_t bytes) {
    if (threadIdx.x % 32 != 0) return;
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&gate)), "r"(bytes)
                 : "memory");
}
/// All multiples of 16.
__device__ inline void copy_async(void* to, const void* from, std::uint32_t bytes, Gate& gate) {
    if (threadIdx.x % 32 != 0) return;
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(&gate))
                 : "memory");
}
/// kCopyArrivals at the gate, once all copies are made.
__device__ inline void end_copies(Gate& gate) { arrive(gate); }
/// Called by threads that wrote where the next copy goes, before they say so.
__device__ inline void before_async_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#else
__device__ inline void publish_gates() {}
__device__ inline void announce_copies(Gate&, std::uint32_t) {}
__device__ inline void copy_async(void* to, const void* from, std::uint32_t bytes, Gate&) {
    const std::uint32_t to_address = shared_address(to);
    for (std::uint32_t at = threadIdx.x % 32 * 16; at < bytes; at += 32 * 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to_address + at),
                     "l"(static_cast<const char*>(from) + at)
                     : "memory");
}
__device__ inline void end_copies(Gate& gate) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&gate)) : "memory");
}
__device__ inline void before_async_writes() {}
#endif

/// One of the block's barriers, from 1 on, for that many of its threads, whichever come. Whole warps.
__device__ inline void meet(unsigned barrier, unsigned threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// Counts at such a barrier and goes on: those that meet there see what was written before. `threads`: of both kinds.
__device__ inline void arrive(unsigned barrier, unsigned threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

#endif

}  // namespace gradsieve::codec::cuda

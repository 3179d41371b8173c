// What a kernel sees: CUDA's keywords, built-in variables and intrinsics, carried out by the host. Every thread of a
// block is a fiber; a lane that needs the others of its warp or block waits until they have come to the same place.
// Included through the stand-ins of CUDA's headers only. Kernels of one block run on one host thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static thread_local

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint3 {
    unsigned x, y, z;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace gradsieve::emulated {

/// Where the running fiber stands in its launch.
struct Place {
    uint3 thread{};
    uint3 block{};
    dim3 block_size;
    dim3 grid_size;
};
[[nodiscard]] const Place& current_place() noexcept;

/// What lanes come together for; lanes of a warp that wait for different things at once are a fault of the kernel.
enum class Meeting : std::uint8_t { kShuffle, kVote, kReduce, kWarpBarrier };

/// Leaves `value` for the warp, waits until all lanes of `mask` have left theirs, and returns all 32 (valid until this
/// lane's next meeting). `mask` has to be that of every lane that runs.
[[nodiscard]] const std::uint64_t* meet_warp(unsigned mask, std::uint64_t value, Meeting meeting);
/// Waits for every thread of the block that has not ended; returns how many of them brought a true `value`.
unsigned meet_block(bool value);
/// Lets the other fibers run; for loops that wait for another block.
void pause_fiber();

template <typename T>
std::uint64_t packed(T value) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
}
template <typename T>
T unpacked(std::uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}
inline unsigned lane() { return current_place().thread.x % 32; }

template <typename T, typename Combine>
T reduced(unsigned mask, T value, Combine combine) {
    const std::uint64_t* all = meet_warp(mask, packed(value), Meeting::kReduce);
    T result = unpacked<T>(all[0]);
    for (unsigned other = 1; other < 32; ++other) result = combine(result, unpacked<T>(all[other]));
    return result;
}
template <typename T>
T shuffled(unsigned mask, T value, unsigned from) {
    return unpacked<T>(meet_warp(mask, packed(value), Meeting::kShuffle)[from % 32]);
}

}  // namespace gradsieve::emulated

#define threadIdx (::gradsieve::emulated::current_place().thread)
#define blockIdx (::gradsieve::emulated::current_place().block)
#define blockDim (::gradsieve::emulated::current_place().block_size)
#define gridDim (::gradsieve::emulated::current_place().grid_size)

// ---- the block ----
inline void __syncthreads() { static_cast<void>(::gradsieve::emulated::meet_block(false)); }
inline int __syncthreads_or(int value) { return ::gradsieve::emulated::meet_block(value != 0) != 0 ? 1 : 0; }
inline int __syncthreads_count(int value) { return static_cast<int>(::gradsieve::emulated::meet_block(value != 0)); }
inline void __nanosleep(unsigned) { ::gradsieve::emulated::pause_fiber(); }
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// ---- the warp ----
inline void __syncwarp(unsigned mask = ~0U) {
    static_cast<void>(::gradsieve::emulated::meet_warp(mask, 0, ::gradsieve::emulated::Meeting::kWarpBarrier));
}
inline unsigned __ballot_sync(unsigned mask, int value) {
    const std::uint64_t* all =
        ::gradsieve::emulated::meet_warp(mask, value != 0 ? 1 : 0, ::gradsieve::emulated::Meeting::kVote);
    unsigned votes = 0;
    for (unsigned lane = 0; lane < 32; ++lane) votes |= static_cast<unsigned>(all[lane]) << lane;
    return votes;
}
inline int __any_sync(unsigned mask, int value) { return __ballot_sync(mask, value) != 0 ? 1 : 0; }
inline int __all_sync(unsigned mask, int value) { return __ballot_sync(mask, value) == ~0U ? 1 : 0; }
template <typename T>
T __shfl_sync(unsigned mask, T value, unsigned from) {
    return ::gradsieve::emulated::shuffled(mask, value, from);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
    const unsigned lane = ::gradsieve::emulated::lane();
    return ::gradsieve::emulated::shuffled(mask, value, lane >= distance ? lane - distance : lane);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
    const unsigned lane = ::gradsieve::emulated::lane();
    return ::gradsieve::emulated::shuffled(mask, value, lane + distance < 32 ? lane + distance : lane);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, unsigned distance) {
    return ::gradsieve::emulated::shuffled(mask, value, ::gradsieve::emulated::lane() ^ distance);
}
template <typename T>
T __reduce_add_sync(unsigned mask, T value) {
    return ::gradsieve::emulated::reduced(mask, value, [](T a, T b) { return static_cast<T>(a + b); });
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value) {
    return ::gradsieve::emulated::reduced(mask, value, [](T a, T b) { return std::min(a, b); });
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value) {
    return ::gradsieve::emulated::reduced(mask, value, [](T a, T b) { return std::max(a, b); });
}
template <typename T>
T __reduce_or_sync(unsigned mask, T value) {
    return ::gradsieve::emulated::reduced(mask, value, [](T a, T b) { return static_cast<T>(a | b); });
}

// ---- atomics: of the whole system here ----
template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
    return std::atomic_ref(*address).fetch_add(value);
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
    return std::atomic_ref(*address).fetch_or(value);
}
template <typename T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
    return std::atomic_ref(*address).fetch_and(value);
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
    return std::atomic_ref(*address).exchange(value);
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> wanted) {
    std::atomic_ref(*address).compare_exchange_strong(expected, wanted);
    return expected;
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
    std::atomic_ref<T> number(*address);
    T seen = number.load();
    while (value < seen && !number.compare_exchange_weak(seen, value)) {}
    return seen;
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
    std::atomic_ref<T> number(*address);
    T seen = number.load();
    while (seen < value && !number.compare_exchange_weak(seen, value)) {}
    return seen;
}

// ---- arithmetic and memory ----
inline int __popc(unsigned value) { return std::popcount(value); }
inline int __clz(int value) { return std::countl_zero(static_cast<unsigned>(value)); }
inline int __ffs(int value) { return value == 0 ? 0 : std::countr_zero(static_cast<unsigned>(value)) + 1; }
inline unsigned __brev(unsigned value) {
    unsigned reversed = 0;
    for (unsigned bit = 0; bit < 32; ++bit) reversed |= (value >> bit & 1U) << (31 - bit);
    return reversed;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((std::uint64_t{high} << 32U | low) >> (shift % 32));
}
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline int __double2hiint(double value) { return static_cast<int>(std::bit_cast<std::uint64_t>(value) >> 32U); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
template <typename T>
T __ldg(const T* address) {
    return *address;
}
template <typename T>
T __ldcg(const T* address) {
    return *address;
}
template <typename T>
T __ldcs(const T* address) {
    return *address;
}
template <typename T>
void __stcs(T* address, std::type_identity_t<T> value) {
    *address = value;
}
template <typename A, typename B>
constexpr auto min(A a, B b) {
    using Common = std::common_type_t<A, B>;
    return static_cast<Common>(b) < static_cast<Common>(a) ? static_cast<Common>(b) : static_cast<Common>(a);
}
template <typename A, typename B>
constexpr auto max(A a, B b) {
    using Common = std::common_type_t<A, B>;
    return static_cast<Common>(a) < static_cast<Common>(b) ? static_cast<Common>(b) : static_cast<Common>(a);
}

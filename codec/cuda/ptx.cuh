// The few instructions that C++ has no words for: loads that are made once and pass the caches by, asking for memory
// ahead of need, and picking bytes. On the emulated card they are plain volatile loads. Device code only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradsieve::codec::cuda {

#if defined(GRADSIEVE_EMULATED_CUDA)

inline float4 load_once(const float4* address) {
    const volatile float* at = reinterpret_cast<const float*>(address);
    return {at[0], at[1], at[2], at[3]};
}
inline float load_once(const float* address) { return *static_cast<const volatile float*>(address); }
inline std::uint16_t load_once(const std::uint16_t* address) {
    return *static_cast<const volatile std::uint16_t*>(address);
}
inline uint2 load_once(const uint2* address) {
    const volatile unsigned* at = reinterpret_cast<const unsigned*>(address);
    return {at[0], at[1]};
}
inline void prefetch_line(const void*) {}
inline std::uint32_t pick_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t which) {
    const std::uint64_t both = std::uint64_t{high} << 32U | low;
    std::uint32_t picked = 0;
    for (unsigned byte = 0; byte < 4; ++byte)
        picked |= static_cast<std::uint32_t>(both >> (8 * (which >> (4 * byte) & 7U)) & 0xFFU) << (8 * byte);
    return picked;
}

#else

// Volatile, so that no load is repeated: a client may change the value meanwhile.
__device__ inline float4 load_once(const float4* address) {
    float4 value;
    asm volatile("ld.global.cs.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "l"(address));
    return value;
}
__device__ inline float load_once(const float* address) {
    float value;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(address));
    return value;
}
__device__ inline std::uint16_t load_once(const std::uint16_t* address) {
    std::uint16_t value;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(value) : "l"(address));
    return value;
}
__device__ inline uint2 load_once(const uint2* address) {
    uint2 value;
    asm volatile("ld.global.cs.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "l"(address));
    return value;
}
/// Four of the eight bytes of `high` above `low`: the hexadecimal digits of `which` number them, the last one's for the
/// lowest.
__device__ inline std::uint32_t pick_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t which) {
    return __byte_perm(low, high, which);
}
__device__ inline void prefetch_line(const void* address) { asm volatile("prefetch.global.L1 [%0];" ::"l"(address)); }

#endif

}  // namespace gradsieve::codec::cuda

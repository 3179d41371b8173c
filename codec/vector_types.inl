// Vectors by the compiler's own extension, as wide as the instruction set that a file is compiled for: the same code
// for every width, and every operation is one of plain C++ on each lane. For files that are compiled once per
// instruction set; internal linkage, as in payload_kernels.inl.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
// GCC 12's intrinsics leave operands undefined on purpose and then warn about it (GCC bug 105593, fixed in 13).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace gradsieve::codec {
namespace {

#if defined(__AVX512F__)
inline constexpr unsigned kLanes = 16;
#elif defined(__AVX2__)
inline constexpr unsigned kLanes = 8;
#else
inline constexpr unsigned kLanes = 4;
#endif
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t Integers __attribute__((vector_size(4 * kLanes)));
typedef std::uint16_t Halves __attribute__((vector_size(2 * kLanes)));
typedef std::uint8_t Octets __attribute__((vector_size(kLanes)));
typedef std::uint32_t HalfWords __attribute__((vector_size(2 * kLanes)));
typedef std::int32_t HalfIntegers __attribute__((vector_size(2 * kLanes)));
typedef float HalfFloats __attribute__((vector_size(2 * kLanes)));
typedef std::uint64_t Longs __attribute__((vector_size(4 * kLanes)));
typedef double Doubles __attribute__((vector_size(4 * kLanes)));

/// Elements in hand at a time: a word of signs, and few enough for registers.
inline constexpr std::uint32_t kRunElements = 32;
inline constexpr unsigned kRunVectors = kRunElements / kLanes;

/// Payload bytes have no alignment: the compiler turns these copies into plain loads and stores.
template <typename T>
[[gnu::always_inline]] inline T load_as(const std::byte* bytes, std::size_t index) {
    T value;
    __builtin_memcpy(&value, bytes + sizeof(T) * index, sizeof(T));
    return value;
}

/// Some bytes, out of the loops' way: what a compiler makes of a size that it does not know costs tens of cycles.
[[gnu::noinline]] inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
    __builtin_memcpy(to, from, bytes);
}
/// `count` elements of kWhole, or fewer at the end.
/// `count` elements of T: kWhole of them, or fewer at an end.
template <typename T, std::uint32_t kWhole>
[[gnu::always_inline]] inline void copy_part(void* to, const void* from, std::uint32_t count) {
    if (count == kWhole) [[likely]]
        __builtin_memcpy(to, from, kWhole * sizeof(T));
    else
        copy_bytes(to, from, count * sizeof(T));
}

[[gnu::always_inline]] inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
[[gnu::always_inline]] inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }

[[gnu::always_inline]] inline Words lane_numbers() {
    Words lanes;
    for (unsigned lane = 0; lane < kLanes; ++lane) lanes[lane] = lane;
    return lanes;
}

/// Cells of a table.
[[gnu::always_inline]] inline Floats cells_at(const float* table, Integers at) {
#if defined(__AVX512F__)
    return _mm512_i32gather_ps(reinterpret_cast<__m512i>(at), table, 4);
#elif defined(__AVX2__)
    return _mm256_i32gather_ps(table, reinterpret_cast<__m256i>(at), 4);
#else
    Floats cells = {};
    for (unsigned lane = 0; lane < kLanes; ++lane) cells[lane] = table[at[lane]];
    return cells;
#endif
}

/// Around the caches if `streams`; the address is then aligned to a vector.
[[gnu::always_inline]] inline void store_floats(float* address, Floats values, bool streams) {
#if defined(__AVX512F__)
    if (streams) return _mm512_stream_ps(address, values);
#elif defined(__AVX2__)
    if (streams) return _mm256_stream_ps(address, values);
#elif defined(__SSE2__)
    if (streams) return _mm_stream_ps(address, values);
#else
    static_cast<void>(streams);
#endif
    __builtin_memcpy(address, &values, sizeof(values));
}

}  // namespace
}  // namespace gradsieve::codec

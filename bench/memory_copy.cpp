#include "memory_copy.hpp"

#include <cstring>
#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12's own intrinsics (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace gradsieve::bench {
#if defined(__x86_64__)
namespace {

constexpr std::size_t kLineBytes = 64;

__attribute__((target("avx512f"))) void copy_avx512(char* target, const char* source, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += kLineBytes) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(target + at), _mm512_load_si512(source + at));
    }
}
__attribute__((target("avx"))) void copy_avx(char* target, const char* source, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += kLineBytes) {
        const auto low = _mm256_load_si256(reinterpret_cast<const __m256i*>(source + at));
        const auto high = _mm256_load_si256(reinterpret_cast<const __m256i*>(source + at + 32));
        _mm256_stream_si256(reinterpret_cast<__m256i*>(target + at), low);
        _mm256_stream_si256(reinterpret_cast<__m256i*>(target + at + 32), high);
    }
}
void copy_sse2(char* target, const char* source, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += 16) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(target + at),
                         _mm_load_si128(reinterpret_cast<const __m128i*>(source + at)));
    }
}

}  // namespace

void copy_around_caches(void* target, const void* source, std::size_t bytes) {
    auto* to = static_cast<char*>(target);
    const auto* from = static_cast<const char*>(source);
    if (__builtin_cpu_supports("avx512f") != 0) {
        copy_avx512(to, from, bytes);
    } else if (__builtin_cpu_supports("avx") != 0) {
        copy_avx(to, from, bytes);
    } else {
        copy_sse2(to, from, bytes);
    }
    _mm_sfence();
}
#else
void copy_around_caches(void* target, const void* source, std::size_t bytes) { std::memcpy(target, source, bytes); }
#endif

}  // namespace gradsieve::bench

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
namespace {

void copy_plainly(std::span<float* const> targets, std::span<const float* const> sources, std::size_t bytes) {
    for (std::size_t target = 0; target < targets.size(); ++target)
        std::memcpy(targets[target], sources[target], bytes);
}

}  // namespace
#if defined(__x86_64__)
namespace {

constexpr std::size_t kLineFloats = 16;

using Targets = std::span<float* const>;
using Sources = std::span<const float* const>;

// A source that is only read is loaded into a register that is said to be used.
__attribute__((target("avx512f"))) void copy_avx512(Targets targets, Sources sources, std::size_t floats) {
    for (std::size_t at = 0; at < floats; at += kLineFloats) {
        for (std::size_t source = 0; source < sources.size(); ++source) {
            const __m512 line = _mm512_load_ps(sources[source] + at);
            if (source < targets.size()) {
                _mm512_stream_ps(targets[source] + at, line);
            } else {
                asm volatile("" : : "v"(line));
            }
        }
    }
}
__attribute__((target("avx"))) void copy_avx(Targets targets, Sources sources, std::size_t floats) {
    for (std::size_t at = 0; at < floats; at += kLineFloats) {
        for (std::size_t source = 0; source < sources.size(); ++source) {
            const __m256 low = _mm256_load_ps(sources[source] + at);
            const __m256 high = _mm256_load_ps(sources[source] + at + 8);
            if (source < targets.size()) {
                _mm256_stream_ps(targets[source] + at, low);
                _mm256_stream_ps(targets[source] + at + 8, high);
            } else {
                asm volatile("" : : "x"(low), "x"(high));
            }
        }
    }
}

}  // namespace

void copy_around_caches(Targets targets, Sources sources, std::size_t bytes) {
    const std::size_t floats = bytes / sizeof(float);
    if (__builtin_cpu_supports("avx512f") != 0) {
        copy_avx512(targets, sources, floats);
    } else if (__builtin_cpu_supports("avx") != 0) {
        copy_avx(targets, sources, floats);
    } else {
        copy_plainly(targets, sources, bytes);
    }
    _mm_sfence();
}
#else
void copy_around_caches(std::span<float* const> targets, std::span<const float* const> sources, std::size_t bytes) {
    copy_plainly(targets, sources, bytes);
}
#endif

}  // namespace gradsieve::bench

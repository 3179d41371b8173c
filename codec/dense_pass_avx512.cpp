// AVX-512 form of the dense pass: sixteen elements a vector, a store of one cache line.
#include "codec/dense_pass_kernel.hpp"

// GCC 12's intrinsics leave operands undefined on purpose and then warn about it (GCC bug 105593, fixed in 13).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

namespace gradsieve::codec {
namespace {

struct Avx512Isa {
    static constexpr unsigned kWidth = 16;
    /// Blocks whose state is written before their lists: four vectors of r and v fit in registers beside the constants.
    static constexpr unsigned kListedBlocks = 2;
    using Vec = __m512;

    static __mmask16 first_lanes(unsigned lanes) { return static_cast<__mmask16>((1U << lanes) - 1U); }
    static __m512i magnitude_bits(Vec a) {
        return _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7FFFFFFF));
    }

    static Vec load(const float* address) { return _mm512_loadu_ps(address); }
    static Vec load_first(const float* address, unsigned lanes) {
        return _mm512_maskz_loadu_ps(first_lanes(lanes), address);
    }
    static void hide(Vec& value) { asm volatile("" : "+v"(value)); }
    static void store(float* address, Vec value) { _mm512_storeu_ps(address, value); }
    static void stream(float* address, Vec value) { _mm512_stream_ps(address, value); }
    static void store_first(float* address, unsigned lanes, Vec value) {
        _mm512_mask_storeu_ps(address, first_lanes(lanes), value);
    }
    static Vec broadcast(float value) { return _mm512_set1_ps(value); }
    static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
    static Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
    static Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
    static Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
    static Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
    static Vec magnitude(Vec a) { return _mm512_castsi512_ps(magnitude_bits(a)); }
    static std::uint32_t greater(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
    static std::uint32_t magnitude_at_least(Vec a, std::uint32_t floor) {
        return _mm512_cmpge_epu32_mask(magnitude_bits(a), _mm512_set1_epi32(static_cast<std::int32_t>(floor)));
    }
    static std::uint32_t non_finite(Vec a) {
        return _mm512_cmpgt_epu32_mask(magnitude_bits(a), _mm512_set1_epi32(0x7F7FFFFF));
    }
    static Vec keep_where(Vec a, std::uint32_t mask) { return _mm512_maskz_mov_ps(static_cast<__mmask16>(mask), a); }
    static Vec add_and_mask_bits(Vec a, std::uint32_t add, std::uint32_t keep) {
        const __m512i sum = _mm512_add_epi32(_mm512_castps_si512(a), _mm512_set1_epi32(static_cast<std::int32_t>(add)));
        return _mm512_castsi512_ps(_mm512_and_si512(sum, _mm512_set1_epi32(static_cast<std::int32_t>(keep))));
    }
    static float fold(Vec a) {
        const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
        const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), high);
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
    }
    /// bf16_of, as the fp32 number that it stands for.
    static Vec round_bf16(Vec a) {
        const __m512i bits = _mm512_castps_si512(a);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
        const __m512i rounded = _mm512_and_si512(sum, _mm512_set1_epi32(static_cast<std::int32_t>(0xFFFF0000U)));
        const __mmask16 is_infinite = _mm512_cmpeq_epi32_mask(_mm512_and_si512(rounded, _mm512_set1_epi32(0x7FFF0000)),
                                                              _mm512_set1_epi32(0x7F800000));
        return _mm512_castsi512_ps(_mm512_mask_sub_epi32(rounded, is_infinite, rounded, _mm512_set1_epi32(0x00010000)));
    }
    /// The upper halves of a block's lanes.
    template <bool kStreams>
    static void store_halves(std::uint16_t* target, const Vec (&block)[2]) {
        const __m256i low = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(block[0]), 16));
        const __m256i high = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(block[1]), 16));
        const __m512i halves = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
        if constexpr (kStreams) {
            _mm512_stream_si512(reinterpret_cast<__m512i*>(target), halves);
        } else {
            _mm512_storeu_si512(target, halves);
        }
    }
    struct Doubles {
        __m512d low = _mm512_setzero_pd();
        __m512d high = _mm512_setzero_pd();
    };
    static void add_magnitudes(Doubles& sums, Vec a) {
        const Vec magnitudes = magnitude(a);
        sums.low = _mm512_add_pd(sums.low, _mm512_cvtps_pd(_mm512_castps512_ps256(magnitudes)));
        sums.high = _mm512_add_pd(sums.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(magnitudes, 1)));
    }
    static void store_doubles(double* target, const Doubles& sums) {
        _mm512_storeu_pd(target, sums.low);
        _mm512_storeu_pd(target + 8, sums.high);
    }
    // Compressing in a register and storing all lanes: the compressing store is microcoded on AMD Zen 4. The list has
    // kListSlack cells to spare.
    static void compress(float* target, Vec a, std::uint32_t mask) {
        _mm512_storeu_ps(target, _mm512_maskz_compress_ps(static_cast<__mmask16>(mask), a));
    }
    static void compress_indices(std::uint32_t* target, std::uint32_t first, std::uint32_t mask) {
        const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i index = _mm512_add_epi32(_mm512_set1_epi32(static_cast<std::int32_t>(first)), lane);
        _mm512_storeu_si512(target, _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask), index));
    }
};

}  // namespace

DensePass find_dense_pass_avx512(DenseRule rule, VarianceSource source) noexcept {
    return find_form<Avx512Isa>(rule, source);
}

}  // namespace gradsieve::codec

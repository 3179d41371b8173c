// AVX2 form of the dense pass: eight elements a vector.
#include "codec/dense_pass_kernel.hpp"

#include <immintrin.h>

namespace gradsieve::codec {
namespace {

/// kFirstLanes + 8 - n: a mask whose first n lanes are set.
alignas(64) constexpr std::int32_t kFirstLanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

/// For each mask the lanes that are set, in order: AVX2 has no compressing instruction.
struct PackedLanes {
    std::uint8_t lanes[256][8] = {};
};
constexpr PackedLanes pack_lanes() {
    PackedLanes packed;
    for (unsigned mask = 0; mask < 256; ++mask) {
        unsigned count = 0;
        for (unsigned lane = 0; lane < 8; ++lane) {
            if (((mask >> lane) & 1U) != 0) packed.lanes[mask][count++] = static_cast<std::uint8_t>(lane);
        }
    }
    return packed;
}
alignas(64) constexpr PackedLanes kPackedLanes = pack_lanes();

struct Avx2Isa {
    static constexpr unsigned kWidth = 8;
    static constexpr unsigned kListedBlocks = 1;
    using Vec = __m256;

    static __m256i first_lanes(unsigned lanes) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kFirstLanes + kWidth - lanes));
    }
    static __m256i magnitude_bits(Vec a) {
        return _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7FFFFFFF));
    }
    static std::uint32_t mask_of(__m256i lanes) {
        return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(lanes)));
    }

    static Vec load(const float* address) { return _mm256_loadu_ps(address); }
    static Vec load_first(const float* address, unsigned lanes) {
        return _mm256_maskload_ps(address, first_lanes(lanes));
    }
    static void hide(Vec& value) { asm volatile("" : "+x"(value)); }
    static void store(float* address, Vec value) { _mm256_storeu_ps(address, value); }
    static void stream(float* address, Vec value) { _mm256_stream_ps(address, value); }
    static void store_first(float* address, unsigned lanes, Vec value) {
        _mm256_maskstore_ps(address, first_lanes(lanes), value);
    }
    static Vec broadcast(float value) { return _mm256_set1_ps(value); }
    static Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
    static Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
    static Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
    static Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
    static Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
    static Vec magnitude(Vec a) { return _mm256_castsi256_ps(magnitude_bits(a)); }
    static std::uint32_t greater(Vec a, Vec b) {
        return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)));
    }
    static std::uint32_t magnitude_at_least(Vec a, std::uint32_t floor) {
        return mask_of(_mm256_cmpgt_epi32(magnitude_bits(a), _mm256_set1_epi32(static_cast<std::int32_t>(floor) - 1)));
    }
    static std::uint32_t non_finite(Vec a) {
        return mask_of(_mm256_cmpgt_epi32(magnitude_bits(a), _mm256_set1_epi32(0x7F7FFFFF)));
    }
    static Vec keep_where(Vec a, std::uint32_t mask) {
        const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        const __m256i hit = _mm256_and_si256(_mm256_set1_epi32(static_cast<std::int32_t>(mask)), lane);
        return _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(hit, lane)), a);
    }
    static Vec add_and_mask_bits(Vec a, std::uint32_t add, std::uint32_t keep) {
        const __m256i sum = _mm256_add_epi32(_mm256_castps_si256(a), _mm256_set1_epi32(static_cast<std::int32_t>(add)));
        return _mm256_castsi256_ps(_mm256_and_si256(sum, _mm256_set1_epi32(static_cast<std::int32_t>(keep))));
    }
    static float fold(Vec a) {
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
    }
    /// bf16_of, as the fp32 number that it stands for.
    static Vec round_bf16(Vec a) {
        const __m256i bits = _mm256_castps_si256(a);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
        const __m256i rounded = _mm256_and_si256(sum, _mm256_set1_epi32(static_cast<std::int32_t>(0xFFFF0000U)));
        const __m256i is_infinite =
            _mm256_cmpeq_epi32(_mm256_and_si256(rounded, _mm256_set1_epi32(0x7FFF0000)), _mm256_set1_epi32(0x7F800000));
        return _mm256_castsi256_ps(
            _mm256_sub_epi32(rounded, _mm256_and_si256(is_infinite, _mm256_set1_epi32(0x00010000))));
    }
    /// The upper halves of a block's lanes.
    template <bool kStreams>
    static void store_halves(std::uint16_t* target, const Vec (&block)[4]) {
        for (unsigned pair = 0; pair < 4; pair += 2) {
            const __m256i low = _mm256_srli_epi32(_mm256_castps_si256(block[pair]), 16);
            const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(block[pair + 1]), 16);
            // Packed within halves of a register: their middle quarters change places.
            const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
            auto* address = reinterpret_cast<__m256i*>(target + pair * kWidth);
            if constexpr (kStreams) {
                _mm256_stream_si256(address, halves);
            } else {
                _mm256_storeu_si256(address, halves);
            }
        }
    }
    struct Doubles {
        __m256d low = _mm256_setzero_pd();
        __m256d high = _mm256_setzero_pd();
    };
    static void add_magnitudes(Doubles& sums, Vec a) {
        const Vec magnitudes = magnitude(a);
        sums.low = _mm256_add_pd(sums.low, _mm256_cvtps_pd(_mm256_castps256_ps128(magnitudes)));
        sums.high = _mm256_add_pd(sums.high, _mm256_cvtps_pd(_mm256_extractf128_ps(magnitudes, 1)));
    }
    static void store_doubles(double* target, const Doubles& sums) {
        _mm256_storeu_pd(target, sums.low);
        _mm256_storeu_pd(target + 4, sums.high);
    }
    static __m256i packed_lanes(std::uint32_t mask) {
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kPackedLanes.lanes[mask])));
    }
    static void compress(float* target, Vec a, std::uint32_t mask) {
        _mm256_storeu_ps(target, _mm256_permutevar8x32_ps(a, packed_lanes(mask)));
    }
    static void compress_indices(std::uint32_t* target, std::uint32_t first, std::uint32_t mask) {
        const __m256i index = _mm256_add_epi32(_mm256_set1_epi32(static_cast<std::int32_t>(first)), packed_lanes(mask));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), index);
    }
};

}  // namespace

DensePass find_dense_pass_avx2(DenseRule rule, VarianceSource source) noexcept {
    return find_form<Avx2Isa>(rule, source);
}

}  // namespace gradsieve::codec

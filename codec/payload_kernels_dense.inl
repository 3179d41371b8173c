// Payload kernels that touch every element of a run: sums, digests, copies, signs, bf16. Part of payload_kernels.inl.
#pragma once

#include "codec/dither_kernel.inl"
#include "codec/f16_kernel.inl"
#include "codec/natural_kernel.inl"
#include "codec/payload_kernels.hpp"

namespace gradsieve::codec {
namespace {

// Must equal mix64 in base/id.hpp (a test compares).
[[gnu::always_inline]] inline std::uint64_t mix(std::uint64_t value) {
    value ^= value >> 30U;
    value *= 0xBF58476D1CE4E5B9ULL;
    value ^= value >> 27U;
    value *= 0x94D049BB133111EBULL;
    return value ^ (value >> 31U);
}

/// fp32 bits of vector `number` of a run of a term, and fl(factor * value) of them.
[[gnu::always_inline]] inline Words term_bits(const DenseTerm& term, std::uint32_t first, unsigned number) {
    const std::uint32_t at = first + number * kLanes;
    if (term.kind == DenseTerm::Kind::kF32) {
        Words words;
        __builtin_memcpy(&words, term.values + std::size_t{at} * 4, sizeof(words));
        return words;
    }
    Halves halves;
    __builtin_memcpy(&halves, term.values + std::size_t{at} * 2, sizeof(halves));
    const Words codes = __builtin_convertvector(halves, Words);
    return term.kind == DenseTerm::Kind::kF16 ? f16_words(codes) : codes << 16U;
}
[[gnu::always_inline]] inline Floats sign_values(const DenseTerm& term, std::uint32_t first, unsigned number) {
    const std::uint32_t word = load_as<std::uint32_t>(term.values, first / 32);
    const Words bits = (Words{} + word) >> (lane_numbers() + number * kLanes);
    const Integers is_negative = reinterpret_cast<Integers>(bits << 31U) < 0;
    return is_negative != 0 ? Floats{} - term.scale : Floats{} + term.factor;
}

/// Codes of a run of dither, a vector of bytes each, widened. Loads eight bytes at a time, none of them outside.
[[gnu::always_inline]] inline void run_codes(const DenseTerm& term, std::uint32_t first,
                                             Words (&ret_codes)[kRunVectors]) {
    const std::byte* packed = term.values + std::size_t{first} / 8 * term.code_bits;
    const std::uint32_t last_load = kRunElements / 8 * term.code_bits - 8;
    alignas(64) std::uint8_t bytes[kRunElements];
    for (std::uint32_t group = 0; group < kRunElements / 8; ++group) {
        const std::uint32_t at = group * term.code_bits;
        const std::uint32_t from = at < last_load ? at : last_load;
        const std::uint64_t word =
            unpack_eight(load_as<std::uint64_t>(packed + from, 0) >> (8 * (at - from)), term.code_bits);
        __builtin_memcpy(bytes + std::size_t{8} * group, &word, sizeof(word));
    }
    for (unsigned j = 0; j < kRunVectors; ++j) {
        Octets octets;
        __builtin_memcpy(&octets, bytes + j * kLanes, sizeof(octets));
        ret_codes[j] = __builtin_convertvector(octets, Words);
    }
}
/// Vector `number` of a run of natural.
[[gnu::always_inline]] inline Floats natural_values_at(const DenseTerm& term, std::uint32_t first, unsigned number) {
    Octets octets;
    __builtin_memcpy(&octets, term.values + first + number * kLanes, sizeof(octets));
    return natural_values(__builtin_convertvector(octets, Words));
}
[[gnu::always_inline]] inline Floats level_values(Words codes, const DenseTerm& term) {
    const Words levels = codes & ((1U << (term.code_bits - 1U)) - 1U);
    const Floats sizes = __builtin_convertvector(reinterpret_cast<Integers>(levels), Floats) * term.scale;
    return reinterpret_cast<Floats>(reinterpret_cast<Words>(sizes) | (codes >> (term.code_bits - 1U)) << 31U);
}

/// inout_sum += the run of one term; `inout_bad` collects lanes that are not finite.
[[gnu::always_inline]] inline void add_run(const DenseTerm& term, std::uint32_t first, Floats (&inout_sum)[kRunVectors],
                                           Words& inout_bad) {
    if (term.kind == DenseTerm::Kind::kSign) {
        for (unsigned j = 0; j < kRunVectors; ++j) inout_sum[j] = inout_sum[j] + sign_values(term, first, j);
        return;
    }
    if (term.kind == DenseTerm::Kind::kDither) {
        Words codes[kRunVectors];
        run_codes(term, first, codes);
        for (unsigned j = 0; j < kRunVectors; ++j)
            inout_sum[j] = inout_sum[j] + term.factor * level_values(codes[j], term);
        return;
    }
    if (term.kind == DenseTerm::Kind::kTable) {
        Words codes[kRunVectors];
        run_codes(term, first, codes);
        for (unsigned j = 0; j < kRunVectors; ++j)
            inout_sum[j] = inout_sum[j] + term.factor * cells_at(term.table, reinterpret_cast<Integers>(codes[j]));
        return;
    }
    if (term.kind == DenseTerm::Kind::kNatural) {
        for (unsigned j = 0; j < kRunVectors; ++j)
            inout_sum[j] = inout_sum[j] + term.factor * natural_values_at(term, first, j);
        return;
    }
    for (unsigned j = 0; j < kRunVectors; ++j) {
        const Words bits = term_bits(term, first, j);
        inout_bad |= reinterpret_cast<Words>((bits & 0x7F800000U) == 0x7F800000U);
        inout_sum[j] = inout_sum[j] + term.factor * reinterpret_cast<Floats>(bits);
    }
}

/// Field i of code_bits, which lies in one byte or two.
[[gnu::always_inline]] inline std::uint32_t code_at(const DenseTerm& term, std::uint32_t i) {
    const std::uint32_t bit = i * term.code_bits;
    auto code = static_cast<std::uint32_t>(term.values[bit / 8]) >> (bit % 8);
    if (bit % 8 + term.code_bits > 8) code |= static_cast<std::uint32_t>(term.values[bit / 8 + 1]) << (8 - bit % 8);
    return code & ((1U << term.code_bits) - 1U);
}
/// Element i of dither.
[[gnu::always_inline]] inline float level_value(const DenseTerm& term, std::uint32_t i) {
    const std::uint32_t code = code_at(term, i);
    const float size =
        static_cast<float>(static_cast<std::int32_t>(code & ((1U << (term.code_bits - 1U)) - 1U))) * term.scale;
    return float_of(bits_of(size) | (code >> (term.code_bits - 1U)) << 31U);
}

/// Element i of natural; the same operations as natural_decoded_bits.
[[gnu::always_inline]] inline float natural_value(const DenseTerm& term, std::uint32_t i) {
    const auto code = static_cast<std::uint32_t>(term.values[i]);
    const std::uint32_t size = code & 0x7FU;
    return float_of((size == 0 ? 0U : (size + kNaturalExponentOffset) << 23U) | (code & 0x80U) << 24U);
}

/// fp32 bits of element i of f32, f16 or bf16.
[[gnu::always_inline]] inline std::uint32_t float_bits_at(const DenseTerm& term, std::uint32_t i) {
    if (term.kind == DenseTerm::Kind::kF32) return load_as<std::uint32_t>(term.values, i);
    const auto code = static_cast<std::uint32_t>(load_as<std::uint16_t>(term.values, i));
    return term.kind == DenseTerm::Kind::kF16 ? f16_words(Words{} + code)[0] : code << 16U;
}

/// One element, for the end of a run.
[[gnu::always_inline]] inline float add_element(const DenseTerm& term, std::uint32_t i, float sum,
                                                bool* inout_is_finite) {
    if (term.kind == DenseTerm::Kind::kSign) {
        const auto bit = (static_cast<std::uint32_t>(term.values[i / 8]) >> (i % 8)) & 1U;
        return sum + (bit != 0 ? -term.scale : term.factor);
    }
    if (term.kind == DenseTerm::Kind::kDither) return sum + term.factor * level_value(term, i);
    if (term.kind == DenseTerm::Kind::kTable) return sum + term.factor * term.table[code_at(term, i)];
    if (term.kind == DenseTerm::Kind::kNatural) return sum + term.factor * natural_value(term, i);
    const std::uint32_t bits = float_bits_at(term, i);
    if ((bits & 0x7F800000U) == 0x7F800000U) *inout_is_finite = false;
    return sum + term.factor * float_of(bits);
}

[[gnu::always_inline]] inline bool has_any(Words words) {
    std::uint32_t any = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane) any |= words[lane];
    return any != 0;
}

bool add_dense(const DenseTerm* shared_term, float* inout_result, std::uint32_t count) {
    const DenseTerm term = *shared_term;
    Words bad{};
    bool is_finite = true;
    const std::uint32_t whole = count / kRunElements * kRunElements;
    for (std::uint32_t first = 0; first < whole; first += kRunElements) {
        Floats sum[kRunVectors];
        __builtin_memcpy(sum, inout_result + first, sizeof(sum));
        add_run(term, first, sum, bad);
        __builtin_memcpy(inout_result + first, sum, sizeof(sum));
    }
    for (std::uint32_t i = whole; i < count; ++i) inout_result[i] = add_element(term, i, inout_result[i], &is_finite);
    return is_finite && !has_any(bad);
}

/// Digests of one vector of results, added lane by lane; `keys`: key + (index << 32) of the vector's first half's
/// lanes.
[[gnu::always_inline]] inline void add_digests(Floats values, Longs keys, Longs& inout_sum) {
    constexpr std::uint64_t kHalf = static_cast<std::uint64_t>(kLanes / 2) << 32U;
    HalfWords halves[2];
    __builtin_memcpy(halves, &values, sizeof(halves));
    for (unsigned half = 0; half < 2; ++half) {
        Longs value = keys + half * kHalf + __builtin_convertvector(halves[half], Longs);
        value ^= value >> 30U;
        value *= 0xBF58476D1CE4E5B9ULL;
        value ^= value >> 27U;
        value *= 0x94D049BB133111EBULL;
        inout_sum += value ^ (value >> 31U);
    }
}

/// sum_dense; with kVotes a sum becomes its sign.
template <bool kVotes>
[[gnu::always_inline]] inline std::uint64_t sum_terms(const DenseTerm* terms, std::uint32_t term_count, float limit,
                                                      float* result, bool streams, std::uint32_t first_index,
                                                      std::uint32_t count, std::uint64_t key, bool* inout_is_finite) {
    Words bad{};
    Longs digests{};
    Longs lane_keys{};
    for (unsigned lane = 0; lane < kLanes / 2; ++lane)
        lane_keys[lane] = key + (static_cast<std::uint64_t>(lane) << 32U);
    const std::uint32_t whole = count / kRunElements * kRunElements;
    for (std::uint32_t first = 0; first < whole; first += kRunElements) {
        Floats sum[kRunVectors] = {};
        for (std::uint32_t term = 0; term < term_count; ++term) add_run(terms[term], first, sum, bad);
        if constexpr (kVotes)
            for (unsigned j = 0; j < kRunVectors; ++j) sum[j] = sum[j] >= limit ? Floats{} + 1.0F : Floats{} - 1.0F;
        for (unsigned j = 0; j < kRunVectors; ++j) store_floats(result + first + j * kLanes, sum[j], streams);
        for (unsigned j = 0; j < kRunVectors; ++j) {
            const auto index = static_cast<std::uint64_t>(first_index + first + j * kLanes);
            add_digests(sum[j], lane_keys + (index << 32U), digests);
        }
    }
    std::uint64_t digest = 0;
    for (unsigned lane = 0; lane < kLanes / 2; ++lane) digest += digests[lane];
    for (std::uint32_t i = whole; i < count; ++i) {
        float sum = 0.0F;
        for (std::uint32_t term = 0; term < term_count; ++term) sum = add_element(terms[term], i, sum, inout_is_finite);
        if constexpr (kVotes) sum = sum >= limit ? 1.0F : -1.0F;
        result[i] = sum;
        digest += mix(key + ((static_cast<std::uint64_t>(first_index + i) << 32U) | bits_of(sum)));
    }
    if (has_any(bad)) *inout_is_finite = false;
    return digest;
}

std::uint64_t sum_dense(const DenseTerm* terms, std::uint32_t term_count, float* result, bool streams,
                        std::uint32_t first_index, std::uint32_t count, std::uint64_t key, bool* inout_is_finite) {
    return sum_terms<false>(terms, term_count, 0.0F, result, streams, first_index, count, key, inout_is_finite);
}

std::uint64_t vote_dense(const DenseTerm* terms, std::uint32_t term_count, float limit, float* result, bool streams,
                         std::uint32_t first_index, std::uint32_t count, std::uint64_t key) {
    bool is_finite = true;  // signs always are
    return sum_terms<true>(terms, term_count, limit, result, streams, first_index, count, key, &is_finite);
}

std::uint64_t digest_run(const float* result, std::uint32_t first_index, std::uint32_t count, std::uint64_t key) {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i)
        sum += mix(key + ((static_cast<std::uint64_t>(first_index + i) << 32U) | bits_of(result[i])));
    return sum;
}

std::uint64_t digest_list(const float* values, const std::uint32_t* indices, std::uint32_t first_index,
                          std::uint32_t count, std::uint64_t key) {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i)
        sum += mix(key + ((static_cast<std::uint64_t>(first_index + indices[i]) << 32U) | bits_of(values[indices[i]])));
    return sum;
}

#if defined(__SSE2__)
void stream_copy(float* out, const float* values, std::uint32_t count) {
    const std::uint32_t whole = reinterpret_cast<std::uintptr_t>(out) % 64 == 0 ? count & ~15U : 0;
    for (std::uint32_t i = 0; i < whole; i += 16) {
#if defined(__AVX512F__)
        _mm512_stream_ps(out + i, _mm512_loadu_ps(values + i));
#elif defined(__AVX2__)
        _mm256_stream_ps(out + i, _mm256_loadu_ps(values + i));
        _mm256_stream_ps(out + i + 8, _mm256_loadu_ps(values + i + 8));
#else
        for (std::uint32_t part = 0; part < 16; part += 4)
            _mm_stream_ps(out + i + part, _mm_loadu_ps(values + i + part));
#endif
    }
    for (std::uint32_t i = whole; i < count; ++i) out[i] = values[i];
}
void stream_fence() { _mm_sfence(); }
#else
void stream_copy(float* out, const float* values, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) out[i] = values[i];
}
void stream_fence() {}
#endif

double magnitude_sum(const float* values, std::uint32_t count) {
    double lane[32] = {};
    const std::uint32_t whole = count & ~31U;
    for (std::uint32_t first = 0; first < whole; first += 32)
        for (std::uint32_t i = 0; i < 32; ++i) lane[i] += static_cast<double>(__builtin_fabsf(values[first + i]));
    for (std::uint32_t i = whole; i < count; ++i) lane[i - whole] += static_cast<double>(__builtin_fabsf(values[i]));
    for (std::uint32_t width = 16; width > 0; width /= 2)
        for (std::uint32_t i = 0; i < width; ++i) lane[i] += lane[i + width];
    return lane[0];
}

SideSums side_sums(const float* values, std::uint32_t count) {
    constexpr unsigned kWide = kLanes / 2;  // lanes of a vector of doubles
    constexpr unsigned kHeld = 16 / kWide;  // vectors of a side in hand, so that both sides stay in registers
    double lanes[2][32] = {};
    SideSums sides;
    const std::uint32_t whole = count & ~31U;
    HalfIntegers negatives = {};
    for (std::uint32_t half = 0; half < 32; half += 16) {
        Doubles positive[kHeld] = {};
        Doubles negative[kHeld] = {};
        for (std::uint32_t first = half; first < whole; first += 32) {
#pragma GCC unroll 8
            for (unsigned j = 0; j < kHeld; ++j) {
                HalfFloats value;
                __builtin_memcpy(&value, values + first + j * kWide, sizeof(value));
                const HalfIntegers is_negative = value < 0.0F;
                const auto bits = reinterpret_cast<HalfIntegers>(value) & 0x7FFFFFFF;
                negatives -= is_negative;
                positive[j] += __builtin_convertvector(reinterpret_cast<HalfFloats>(bits & ~is_negative), Doubles);
                negative[j] += __builtin_convertvector(reinterpret_cast<HalfFloats>(bits & is_negative), Doubles);
            }
        }
        __builtin_memcpy(lanes[0] + half, positive, sizeof(positive));
        __builtin_memcpy(lanes[1] + half, negative, sizeof(negative));
    }
    for (unsigned lane = 0; lane < kWide; ++lane) sides.negatives += static_cast<std::uint32_t>(negatives[lane]);
    for (std::uint32_t i = whole; i < count; ++i)
        lanes[values[i] < 0.0F ? 1 : 0][i - whole] += static_cast<double>(__builtin_fabsf(values[i]));
    for (std::uint32_t i = whole; i < count; ++i) sides.negatives += values[i] < 0.0F ? 1U : 0U;
    for (unsigned side = 0; side < 2; ++side) {
        for (std::uint32_t width = 16; width > 0; width /= 2)
            for (std::uint32_t i = 0; i < width; ++i) lanes[side][i] += lanes[side][i + width];
        sides.sums[side] = lanes[side][0];
    }
    return sides;
}

#if defined(__AVX512F__)
inline constexpr std::uint32_t kSignGroup = 16;
[[gnu::always_inline]] inline std::uint32_t negative_bits(const float* values) {
    return _mm512_cmp_ps_mask(_mm512_loadu_ps(values), _mm512_setzero_ps(), _CMP_LT_OQ);
}
#elif defined(__AVX2__)
inline constexpr std::uint32_t kSignGroup = 16;
[[gnu::always_inline]] inline std::uint32_t negative_bits(const float* values) {
    const __m256 zero = _mm256_setzero_ps();
    const auto low = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(values), zero, _CMP_LT_OQ));
    const auto high = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(values + 8), zero, _CMP_LT_OQ));
    return static_cast<std::uint32_t>(low) | (static_cast<std::uint32_t>(high) << 8U);
}
#else
inline constexpr std::uint32_t kSignGroup = 16;
[[gnu::always_inline]] inline std::uint32_t negative_bits(const float* values) {
    std::uint32_t bits = 0;
    for (std::uint32_t i = 0; i < kSignGroup; ++i) bits |= (values[i] < 0.0F ? 1U : 0U) << i;
    return bits;
}
#endif

void pack_sign_bits(const float* values, std::uint32_t count, std::byte* ret_bits) {
    const std::uint32_t whole = count & ~(kSignGroup - 1);
    for (std::uint32_t first = 0; first < whole; first += kSignGroup) {
        const auto packed = static_cast<std::uint16_t>(negative_bits(values + first));
        __builtin_memcpy(ret_bits + first / 8, &packed, sizeof(packed));
    }
    std::uint32_t last = 0;
    for (std::uint32_t i = whole; i < count; ++i) last |= (values[i] < 0.0F ? 1U : 0U) << (i - whole);
    for (std::uint32_t i = whole; i < count; i += 8) ret_bits[i / 8] = static_cast<std::byte>(last >> (i - whole));
}

void pack_signs(const float* values, std::uint32_t count, float scale, float negative_scale, std::byte* ret_bits,
                float* ret_decoded) {
    pack_sign_bits(values, count, ret_bits);
    for (std::uint32_t i = 0; i < count; ++i) ret_decoded[i] = values[i] < 0.0F ? -negative_scale : scale;
}

void settle_signs(const float* values, std::uint32_t count, float scale, float negative_scale, std::byte* ret_bits,
                  float* ret_left) {
    pack_sign_bits(values, count, ret_bits);
    for (std::uint32_t i = 0; i < count; ++i) ret_left[i] = values[i] - (values[i] < 0.0F ? -negative_scale : scale);
}

void round_bf16(const float* values, std::uint32_t count, std::uint16_t* ret_codes, float* ret_decoded) {
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t bits = bits_of(values[i]);
        std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
        rounded -= (rounded & 0x7FFFU) == 0x7F80U ? 1U : 0U;
        ret_codes[i] = static_cast<std::uint16_t>(rounded);
        ret_decoded[i] = float_of(rounded << 16U);
    }
}

void round_f16(const float* values, std::uint32_t count, std::uint16_t* ret_codes, float* ret_decoded) {
    for (std::uint32_t first = 0; first < count; first += kLanes) {
        const std::uint32_t valid = count - first < kLanes ? count - first : kLanes;
        Floats value = {};
        copy_part<float, kLanes>(&value, values + first, valid);
        const Words codes = f16_codes(value);
        const Words decoded = f16_words(codes);
        const Halves halves = __builtin_convertvector(codes, Halves);
        copy_part<std::uint16_t, kLanes>(ret_codes + first, &halves, valid);
        copy_part<float, kLanes>(ret_decoded + first, &decoded, valid);
    }
}

}  // namespace
}  // namespace gradsieve::codec

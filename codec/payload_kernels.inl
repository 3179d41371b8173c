// Body of the payload kernels, compiled once per instruction set. Everything here has internal linkage and calls no
// inline function of any header: an out-of-line copy compiled for AVX-512 must never be what an older CPU runs.
#include "codec/payload_kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradsieve::codec {
namespace {

// Payload bytes have no alignment: the compiler turns these copies into plain loads and stores.
template <typename T>
[[gnu::always_inline]] inline T load_as(const std::byte* bytes, std::size_t index) {
    T value;
    __builtin_memcpy(&value, bytes + sizeof(T) * index, sizeof(T));
    return value;
}

[[gnu::always_inline]] inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
[[gnu::always_inline]] inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }

// Must equal mix64 in base/id.hpp (a test compares).
[[gnu::always_inline]] inline std::uint64_t mix(std::uint64_t value) {
    value ^= value >> 30U;
    value *= 0xBF58476D1CE4E5B9ULL;
    value ^= value >> 27U;
    value *= 0x94D049BB133111EBULL;
    return value ^ (value >> 31U);
}

// `load(i)` gives the fp32 bits of element i.
template <typename Load>
[[gnu::always_inline]] inline bool add_scaled(float* __restrict result, float factor, std::uint32_t count,
                                              bool is_first, Load load) {
    std::uint32_t non_finite = 0;
    if (is_first) {
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::uint32_t bits = load(i);
            non_finite |= (bits & 0x7F800000U) == 0x7F800000U ? 1U : 0U;
            result[i] = 0.0F + factor * float_of(bits);
        }
    } else {
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::uint32_t bits = load(i);
            non_finite |= (bits & 0x7F800000U) == 0x7F800000U ? 1U : 0U;
            result[i] = result[i] + factor * float_of(bits);
        }
    }
    return non_finite == 0;
}

bool add_f32(float* result, const std::byte* source, float factor, std::uint32_t count, bool is_first) {
    return add_scaled(result, factor, count, is_first,
                      [source](std::uint32_t i) { return load_as<std::uint32_t>(source, i); });
}

bool add_bf16(float* result, const std::byte* source, float factor, std::uint32_t count, bool is_first) {
    return add_scaled(result, factor, count, is_first, [source](std::uint32_t i) {
        return static_cast<std::uint32_t>(load_as<std::uint16_t>(source, i)) << 16U;
    });
}

void add_sign(float* __restrict result, const std::byte* bits, float scaled, std::uint32_t count, bool is_first) {
    const std::uint32_t magnitude = bits_of(scaled);
    const std::uint32_t whole = count / 32;
    for (std::uint32_t word_index = 0; word_index < whole; ++word_index) {
        const auto word = load_as<std::uint32_t>(bits, word_index);
        float* group = result + 32 * word_index;
        if (is_first) {
            for (std::uint32_t i = 0; i < 32; ++i)
                group[i] = 0.0F + float_of(magnitude ^ ((word << (31 - i)) & 0x80000000U));
        } else {
            for (std::uint32_t i = 0; i < 32; ++i)
                group[i] = group[i] + float_of(magnitude ^ ((word << (31 - i)) & 0x80000000U));
        }
    }
    for (std::uint32_t i = 32 * whole; i < count; ++i) {
        const auto bit = (static_cast<std::uint32_t>(bits[i / 8]) >> (i % 8)) & 1U;
        result[i] = (is_first ? 0.0F : result[i]) + float_of(magnitude ^ (bit << 31U));
    }
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

// Up to eight bytes as one little-endian word; bytes beyond the end are zero.
[[gnu::always_inline]] inline std::uint64_t load_word(const std::byte* bytes, std::size_t available) {
    if (available >= 8) return load_as<std::uint64_t>(bytes, 0);
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < available; ++i) word |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
    return word;
}

// The j-th one stands at position (sum of quotients up to j) + j, so the index is
// ((position - j) << parameter) + (sum of remainders up to j) + j.
std::uint64_t rice_indices(const std::byte* unary, std::size_t available_bytes, std::uint32_t count, unsigned parameter,
                           std::uint32_t* inout_indices, std::uint64_t* ret_last) {
    std::uint64_t remainders = 0;
    std::uint64_t index = 0;
    std::uint32_t element = 0;
    for (std::size_t byte = 0; byte < available_bytes; byte += 8) {
        std::uint64_t word = load_word(unary + byte, available_bytes - byte);
        while (word != 0) {
            const std::uint64_t position = 8 * byte + static_cast<unsigned>(__builtin_ctzll(word));
            word &= word - 1;
            remainders += inout_indices[element];
            index = ((position - element) << parameter) + remainders + element;
            inout_indices[element] = static_cast<std::uint32_t>(index);
            if (++element == count) {
                *ret_last = index;
                return position + 1;
            }
        }
    }
    return 0;
}

std::uint32_t count_ones(const std::byte* bits, std::size_t bytes) {
    std::uint64_t ones = 0;
    for (std::size_t byte = 0; byte < bytes; byte += 8)
        ones += static_cast<unsigned>(__builtin_popcountll(load_word(bits + byte, bytes - byte)));
    return static_cast<std::uint32_t>(ones);
}

// Four at a time without asking: the usual word of a sparse list holds a few, and a wrong guess costs more.
[[gnu::always_inline]] inline std::uint32_t* append_ones(std::uint64_t word, std::uint32_t base, std::uint32_t* out) {
    const auto ones = static_cast<unsigned>(__builtin_popcountll(word));
    for (unsigned written = 0; written < ones; written += 4) {
        for (unsigned lane = 0; lane < 4; ++lane) {
            out[written + lane] = base + static_cast<unsigned>(__builtin_ctzll(word | (1ULL << 63U)));
            word &= word - 1;
        }
    }
    return out + ones;
}

std::uint32_t bitmap_indices(const std::byte* bits, std::size_t bytes, std::uint32_t first_index,
                             std::uint32_t* ret_indices) {
    std::uint32_t* out = ret_indices;
    for (std::size_t byte = 0; byte < bytes; byte += 8)
        out =
            append_ones(load_word(bits + byte, bytes - byte), first_index + static_cast<std::uint32_t>(8 * byte), out);
    return static_cast<std::uint32_t>(out - ret_indices);
}

std::uint32_t take_tile_indices(std::uint64_t* inout_words, std::uint64_t used, std::uint32_t first_index,
                                std::uint32_t* ret_indices) {
    std::uint32_t* out = ret_indices;
    for (; used != 0; used &= used - 1) {
        const auto word_index = static_cast<unsigned>(__builtin_ctzll(used));
        out = append_ones(inout_words[word_index], first_index + 64 * word_index, out);
        inout_words[word_index] = 0;
    }
    return static_cast<std::uint32_t>(out - ret_indices);
}

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

void pack_signs(const float* values, std::uint32_t count, float scale, std::byte* ret_bits, float* ret_decoded) {
    pack_sign_bits(values, count, ret_bits);
    for (std::uint32_t i = 0; i < count; ++i) ret_decoded[i] = values[i] < 0.0F ? -scale : scale;
}

// One cache line of what settle_signs leaves: 16 floats.
[[gnu::always_inline]] inline void settle_sign_line(const float* values, float scale, float* ret_left, bool streams) {
#if defined(__AVX512F__)
    const __m512 value = _mm512_loadu_ps(values);
    const __mmask16 negative = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_LT_OQ);
    const __m512 left = _mm512_sub_ps(value, _mm512_mask_mov_ps(_mm512_set1_ps(scale), negative, _mm512_set1_ps(-scale)));
    if (streams)
        _mm512_stream_ps(ret_left, left);
    else
        _mm512_storeu_ps(ret_left, left);
#elif defined(__AVX2__)
    for (unsigned part = 0; part < 16; part += 8) {
        const __m256 value = _mm256_loadu_ps(values + part);
        const __m256 negative = _mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_LT_OQ);
        const __m256 left =
            _mm256_sub_ps(value, _mm256_blendv_ps(_mm256_set1_ps(scale), _mm256_set1_ps(-scale), negative));
        if (streams)
            _mm256_stream_ps(ret_left + part, left);
        else
            _mm256_storeu_ps(ret_left + part, left);
    }
#else
    static_cast<void>(streams);
    for (unsigned i = 0; i < 16; ++i) ret_left[i] = values[i] - (values[i] < 0.0F ? -scale : scale);
#endif
}

void settle_signs(const float* values, std::uint32_t count, float scale, std::byte* ret_bits, float* ret_left,
                  bool streams, const float* const* inputs, std::uint32_t input_count) {
    const std::uint32_t whole = count & ~15U;
    for (std::uint32_t first = 0; first < whole; first += 16) {
        const auto packed = static_cast<std::uint16_t>(negative_bits(values + first));
        __builtin_memcpy(ret_bits + first / 8, &packed, sizeof(packed));
        // As far as the second level: reading while writing keeps the memory busy both ways.
        for (std::uint32_t input = 0; input < input_count; ++input) __builtin_prefetch(inputs[input] + first, 0, 2);
        settle_sign_line(values + first, scale, ret_left + first, streams);
    }
    pack_sign_bits(values + whole, count - whole, ret_bits + whole / 8);
    for (std::uint32_t i = whole; i < count; ++i) ret_left[i] = values[i] - (values[i] < 0.0F ? -scale : scale);
}

std::uint32_t largest_magnitude(const float* values, std::uint32_t count) {
    std::int32_t largest = 0;  // signed, since that is what baseline vectors can compare
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto magnitude = static_cast<std::int32_t>(bits_of(values[i]) & 0x7FFFFFFFU);
        largest = magnitude > largest ? magnitude : largest;
    }
    return static_cast<std::uint32_t>(largest);
}

// The rounding adds half an octave to the mantissa and drops the mantissa.
std::uint32_t quantize_pow2(const float* values, std::uint32_t count, std::uint32_t top, unsigned bits,
                            float* ret_decoded, std::uint8_t* __restrict ret_codes) {
    const auto limit = static_cast<std::int32_t>(top);
    const std::int32_t range = (1 << (bits - 1)) - 1;
    std::uint32_t sent = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t word = bits_of(values[i]);
        const std::uint32_t magnitude = word & 0x7FFFFFFFU;
        auto exponent = static_cast<std::int32_t>((magnitude + 0x00400000U) >> 23U);
        exponent = exponent < limit ? exponent : limit;
        const bool is_sent = static_cast<std::int32_t>(magnitude) >= 0x00800000 && exponent + range >= limit;
        const std::uint32_t decoded = (word & 0x80000000U) | (static_cast<std::uint32_t>(exponent) << 23U);
        ret_codes[i] = static_cast<std::uint8_t>(((word >> 31U) << (bits - 1)) | static_cast<std::uint32_t>(limit - exponent));
        ret_decoded[i] = float_of(is_sent ? decoded : 0U);
        sent += is_sent ? 1U : 0U;
    }
    return sent;
}

void make_gaps(const std::uint32_t* __restrict indices, std::uint32_t count, std::uint32_t* __restrict ret_gaps) {
    ret_gaps[0] = indices[0];
    for (std::uint32_t i = 1; i < count; ++i) ret_gaps[i] = indices[i] - indices[i - 1] - 1;
}

std::uint32_t quotient_sum(const std::uint32_t* gaps, std::uint32_t count, unsigned parameter) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) sum += gaps[i] >> parameter;
    return sum;
}

void pack_words(const std::uint32_t* fields, std::uint32_t groups_of_8, unsigned width, std::byte* out) {
    const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
    const auto four = [&](const std::uint32_t* from) {
        return (from[0] & mask) | (from[1] & mask) << width | (from[2] & mask) << (2 * width) |
               (from[3] & mask) << (3 * width);
    };
    for (std::uint32_t group = 0; group < groups_of_8; ++group, fields += 8, out += width) {
        const std::uint64_t high = four(fields + 4);
        const std::uint64_t words[2] = {four(fields) | (width < 16 ? high << (4 * width) : 0), high >> (64 - 4 * width)};
        __builtin_memcpy(out, words, sizeof(words));
    }
}

// Neighbours are joined thrice: two bytes, two pairs, two fours.
void pack_bytes(const std::uint8_t* fields, std::uint32_t groups_of_8, unsigned width, std::byte* out) {
    for (std::uint32_t group = 0; group < groups_of_8; ++group, fields += 8, out += width) {
        std::uint64_t word = 0;
        __builtin_memcpy(&word, fields, sizeof(word));
        word = (word & 0x00FF00FF00FF00FFULL) | ((word >> 8U) & 0x00FF00FF00FF00FFULL) << width;
        word = (word & 0x0000FFFF0000FFFFULL) | ((word >> 16U) & 0x0000FFFF0000FFFFULL) << (2 * width);
        word = (word & 0x00000000FFFFFFFFULL) | (word >> 32U) << (4 * width);
        __builtin_memcpy(out, &word, sizeof(word));
    }
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

std::uint32_t check_guesses(const GuessCheck& shared_check, const float* __restrict values,
                            const float* __restrict decoded, std::uint32_t count, float* __restrict ret_left,
                            std::uint8_t* __restrict ret_wrong) {
    const GuessCheck check = shared_check;
    const std::uint32_t remainder_mask = check.is_faithful ? 0 : ~0U;
    std::uint32_t sent = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        const float value = values[i];
        const bool is_sent = decoded[i] != 0.0F;
        const bool is_guessed = (bits_of(value) & 0x7FFFFFFFU) >= check.floor;
        const float guess = float_of(is_guessed ? (bits_of(value) + check.add_bits) & check.keep_bits : 0U);
        const std::uint32_t after = bits_of(value - decoded[i]) & remainder_mask;
        const std::uint32_t left = is_sent ? after : bits_of(value);
        ret_left[i] = float_of(left);
        ret_wrong[i] = static_cast<std::uint8_t>((left != bits_of(value - guess) ? 1U : 0U) |
                                                 (is_sent != is_guessed ? 2U : 0U));
        sent += is_sent ? 1U : 0U;
    }
    return sent;
}

constexpr PayloadKernels kKernels = {
    .add_f32 = &add_f32,
    .add_bf16 = &add_bf16,
    .add_sign = &add_sign,
    .digest_run = &digest_run,
    .digest_list = &digest_list,
    .stream_copy = &stream_copy,
    .stream_fence = &stream_fence,
    .rice_indices = &rice_indices,
    .count_ones = &count_ones,
    .bitmap_indices = &bitmap_indices,
    .take_tile_indices = &take_tile_indices,
    .magnitude_sum = &magnitude_sum,
    .settle_signs = &settle_signs,
    .pack_signs = &pack_signs,
    .round_bf16 = &round_bf16,
    .largest_magnitude = &largest_magnitude,
    .quantize_pow2 = &quantize_pow2,
    .make_gaps = &make_gaps,
    .quotient_sum = &quotient_sum,
    .pack_words = &pack_words,
    .pack_bytes = &pack_bytes,
    .check_guesses = &check_guesses,
};

}  // namespace
}  // namespace gradsieve::codec

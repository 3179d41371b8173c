// Payload kernels of lists: indices, codes, guesses. Part of payload_kernels.inl.
#pragma once

#include "codec/payload_kernels_dense.inl"

namespace gradsieve::codec {
namespace {

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

std::uint32_t elias_fano_indices(const std::byte* highs, std::size_t bytes, unsigned low_bits,
                                 std::uint32_t* inout_indices) {
    std::uint32_t element = 0;
    std::uint32_t next = 0;  // the smallest index allowed
    std::uint32_t first_wrong = ~0U;
    for (std::size_t byte = 0; byte < bytes; byte += 8) {
        std::uint64_t word = load_word(highs + byte, bytes - byte);
        for (; word != 0; word &= word - 1, ++element) {
            const auto position = static_cast<std::uint32_t>(8 * byte) + static_cast<unsigned>(__builtin_ctzll(word));
            const std::uint32_t index = ((position - element) << low_bits) | inout_indices[element];
            first_wrong = index < next && element < first_wrong ? element : first_wrong;
            inout_indices[element] = index;
            next = index + 1;
        }
    }
    return first_wrong < element ? first_wrong : element;
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


void unpack_words(const std::byte* packed, std::uint32_t groups_of_8, unsigned width, std::uint32_t* ret_fields) {
    const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
    for (std::uint32_t group = 0; group < groups_of_8; ++group, packed += width, ret_fields += 8) {
        const std::uint64_t low = load_as<std::uint64_t>(packed, 0);
        // Fields 4 to 7 begin at bit 4 * width: a whole or half a byte into byte width / 2.
        const std::uint64_t high = load_as<std::uint64_t>(packed + width / 2, 0) >> (width % 2 * 4);
        for (unsigned i = 0; i < 4; ++i) {
            ret_fields[i] = static_cast<std::uint32_t>((low >> (i * width)) & mask);
            ret_fields[4 + i] = static_cast<std::uint32_t>((high >> (i * width)) & mask);
        }
    }
}

void unpack_bytes(const std::byte* packed, std::uint32_t groups_of_8, unsigned width, std::uint8_t* ret_fields) {
    const std::uint64_t field = ((std::uint64_t{1} << width) - 1) * 0x0101010101010101ULL;
    for (std::uint32_t group = 0; group < groups_of_8; ++group, packed += width, ret_fields += 8) {
        std::uint64_t word = load_as<std::uint64_t>(packed, 0);
        word = (word & 0xFFFFFFFFULL) | (word >> (4 * width)) << 32U;
        word = (word & 0x0000FFFF0000FFFFULL) | ((word >> (2 * width)) & 0x0000FFFF0000FFFFULL) << 16U;
        word = (word & 0x00FF00FF00FF00FFULL) | ((word >> width) & 0x00FF00FF00FF00FFULL) << 8U;
        word &= field;
        __builtin_memcpy(ret_fields, &word, sizeof(word));
    }
}

bool decode_pow2(const std::uint8_t* __restrict codes, std::uint32_t count, std::uint32_t top, unsigned bits,
                 float* __restrict ret_values) {
    const std::uint32_t octave_mask = (1U << (bits - 1)) - 1;
    std::int32_t largest = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t octaves = codes[i] & octave_mask;
        const std::uint32_t sign = static_cast<std::uint32_t>(codes[i]) >> (bits - 1);
        largest = static_cast<std::int32_t>(octaves) > largest ? static_cast<std::int32_t>(octaves) : largest;
        ret_values[i] = float_of((sign << 31U) | ((top - octaves) << 23U));
    }
    return static_cast<std::uint32_t>(largest) < top;
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

}  // namespace
}  // namespace gradsieve::codec

// Payload kernels of dithering. Part of payload_kernels.inl.
#pragma once

#include "codec/dither_kernel.inl"
#include "codec/payload_kernels.hpp"

namespace gradsieve::codec {
namespace {

double square_sum(const float* values, std::uint32_t count) {
    double lane[32] = {};
    const std::uint32_t whole = count & ~31U;
    for (std::uint32_t first = 0; first < whole; first += 32)
        for (std::uint32_t i = 0; i < 32; ++i) {
            const auto value = static_cast<double>(values[first + i]);
            lane[i] += value * value;
        }
    for (std::uint32_t i = whole; i < count; ++i) {
        const auto value = static_cast<double>(values[i]);
        lane[i - whole] += value * value;
    }
    for (std::uint32_t width = 16; width > 0; width /= 2)
        for (std::uint32_t i = 0; i < width; ++i) lane[i] += lane[i + width];
    return lane[0];
}

void dither_dense(const DitherStep& shared_step, const float* values, std::uint32_t count, std::byte* ret_codes,
                  float* ret_decoded, float* ret_left) {
    const DitherStep step = shared_step;
    for (std::uint32_t first = 0; first < count; first += kRunElements) {
        const std::uint32_t valid = count - first < kRunElements ? count - first : kRunElements;
        Floats run[kRunVectors] = {};
        __builtin_memcpy(run, values + first, valid * sizeof(float));
        const DitheredRun dithered = dither_run(step, step.first_element + first, run);
        if (ret_left != nullptr) {
            Floats left[kRunVectors];
            for (unsigned j = 0; j < kRunVectors; ++j) left[j] = run[j] - dithered.decoded[j];
            __builtin_memcpy(ret_left + first, left, valid * sizeof(float));
        }
        if (ret_decoded != nullptr) __builtin_memcpy(ret_decoded + first, dithered.decoded, valid * sizeof(float));
        std::byte* out = ret_codes + std::size_t{first} / 8 * step.bits;
        if (valid == kRunElements) {
            pack_run(dithered.codes, step.bits, out);
        } else {
            std::byte packed[kRunElements + 8];
            pack_run(dithered.codes, step.bits, packed);
            __builtin_memcpy(out, packed, (valid * step.bits + 7) / 8);
        }
    }
}

std::uint32_t dither_list(const DitherStep& shared_step, const float* values, const std::uint32_t* indices,
                          std::uint32_t count, float* ret_decoded, std::uint8_t* ret_codes) {
    const DitherStep step = shared_step;
    std::uint32_t sent = 0;
    for (std::uint32_t first = 0; first < count; first += kLanes) {
        const std::uint32_t valid = count - first < kLanes ? count - first : kLanes;
        Floats value = {};
        std::uint32_t index[kLanes] = {};
        __builtin_memcpy(&value, values + first, valid * sizeof(float));
        __builtin_memcpy(index, indices + first, valid * sizeof(std::uint32_t));
        const DitheredLanes lanes =
            dither_lanes(step, value, random_words_at(step.random, step.first_element, index));
        const Octets codes = __builtin_convertvector(lanes.codes, Octets);
        __builtin_memcpy(ret_decoded + first, &lanes.decoded, valid * sizeof(float));
        __builtin_memcpy(ret_codes + first, &codes, valid);
        for (std::uint32_t i = 0; i < valid; ++i) sent += codes[i] != 0 ? 1U : 0U;
    }
    return sent;
}

void decode_levels(const std::uint8_t* __restrict codes, std::uint32_t count, unsigned bits, float scale,
                   float* __restrict ret_values) {
    const std::uint32_t level_mask = (1U << (bits - 1U)) - 1U;
    for (std::uint32_t i = 0; i < count; ++i) {
        const float size = static_cast<float>(static_cast<std::int32_t>(codes[i] & level_mask)) * scale;
        ret_values[i] = float_of(bits_of(size) | static_cast<std::uint32_t>(codes[i] >> (bits - 1U)) << 31U);
    }
}

}  // namespace
}  // namespace gradsieve::codec

// Payload kernels of integer rounding: the same operations as codec/stages/integer.hpp, lane by lane. Part of
// payload_kernels.inl.
#pragma once

#include "codec/integer_step.hpp"
#include "codec/payload_kernels.hpp"
#include "codec/random_kernel.inl"

namespace gradsieve::codec {
namespace {

struct IntegerLanes {
    Floats decoded;
    Words codes;
};
[[gnu::always_inline]] inline IntegerLanes integer_lanes(const IntegerStep& step, Floats values, Words random) {
    const Words bits = reinterpret_cast<Words>(values);
    const Floats exact = reinterpret_cast<Floats>(bits & 0x7FFFFFFFU) * (Floats{} + step.scale);
    const Floats most = Floats{} + static_cast<float>(kMostInteger);
    const Floats limited = exact < most ? exact : most;
    const Integers whole = __builtin_convertvector(limited, Integers);
    const Floats part = (limited - __builtin_convertvector(whole, Floats)) * 0x1p24F;
    const auto fraction = reinterpret_cast<Words>(__builtin_convertvector(part, Integers));
    const Words magnitude = reinterpret_cast<Words>(whole) + ((fraction + (random >> 8U)) >> kIntegerFractionBits);
    const Words sign = bits & kIntegerSign & reinterpret_cast<Words>(magnitude != 0);
    const Floats size = __builtin_convertvector(reinterpret_cast<Integers>(magnitude), Floats) * (Floats{} + step.size);
    return {reinterpret_cast<Floats>(reinterpret_cast<Words>(size) | sign), magnitude | sign};
}

std::uint32_t integer_dense(const IntegerStep& shared_step, const float* values, std::uint32_t count,
                            std::uint32_t* ret_codes, float* ret_decoded, float* ret_left) {
    const IntegerStep step = shared_step;
    Words seen = {};
    for (std::uint32_t first = 0; first < count; first += kRunElements) {
        const std::uint32_t valid = count - first < kRunElements ? count - first : kRunElements;
        Floats run[kRunVectors] = {};
        copy_part<float, kRunElements>(run, values + first, valid);
        Floats decoded[kRunVectors];
        Words codes[kRunVectors];
#pragma GCC unroll 4
        for (unsigned j = 0; j < kRunVectors; j += 2) {
            RandomPair random = {Words{} + kHalfStepWord, Words{} + kHalfStepWord};
            if (!step.is_biased) random = random_pair(step.random, step.first_element + first + j * kLanes);
            const IntegerLanes lanes[2] = {integer_lanes(step, run[j], random.first),
                                           integer_lanes(step, run[j + 1], random.second)};
            for (unsigned k = 0; k < 2; ++k) {
                decoded[j + k] = lanes[k].decoded;
                codes[j + k] = lanes[k].codes;
                seen |= lanes[k].codes;
            }
        }
        if (ret_left != nullptr) {
            Floats left[kRunVectors];
            for (unsigned j = 0; j < kRunVectors; ++j) left[j] = run[j] - decoded[j];
            copy_part<float, kRunElements>(ret_left + first, left, valid);
        }
        if (ret_decoded != nullptr) copy_part<float, kRunElements>(ret_decoded + first, decoded, valid);
        copy_part<std::uint32_t, kRunElements>(ret_codes + first, codes, valid);
    }
    std::uint32_t all = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane) all |= seen[lane];
    return all & ~kIntegerSign;
}

std::uint32_t integer_list(const IntegerStep& shared_step, const float* values, const std::uint32_t* indices,
                           std::uint32_t count, float* ret_decoded, std::uint32_t* ret_codes) {
    const IntegerStep step = shared_step;
    std::uint32_t sent = 0;
    for (std::uint32_t first = 0; first < count; first += kLanes) {
        const std::uint32_t valid = count - first < kLanes ? count - first : kLanes;
        Floats value = {};
        std::uint32_t index[kLanes] = {};
        copy_part<float, kLanes>(&value, values + first, valid);
        copy_part<std::uint32_t, kLanes>(index, indices + first, valid);
        Words random = Words{} + kHalfStepWord;
        if (!step.is_biased) random = random_words_at(step.random, step.first_element, index);
        const IntegerLanes lanes = integer_lanes(step, value, random);
        copy_part<float, kLanes>(ret_decoded + first, &lanes.decoded, valid);
        copy_part<std::uint32_t, kLanes>(ret_codes + first, &lanes.codes, valid);
        for (std::uint32_t i = 0; i < valid; ++i) sent += ret_codes[first + i] != 0 ? 1U : 0U;
    }
    return sent;
}

void narrow_integers(const std::uint32_t* codes, std::uint32_t count, unsigned bits, std::uint32_t* ret_fields) {
    for (std::uint32_t i = 0; i < count; ++i)
        ret_fields[i] = (codes[i] & ~kIntegerSign) | codes[i] >> 31U << (bits - 1U);
}

void decode_integers(const std::uint32_t* __restrict fields, std::uint32_t count, unsigned bits, float size,
                     float* __restrict ret_values) {
    const std::uint32_t mask = (1U << (bits - 1U)) - 1U;
    for (std::uint32_t i = 0; i < count; ++i) {
        const float value = static_cast<float>(static_cast<std::int32_t>(fields[i] & mask)) * size;
        ret_values[i] = float_of(bits_of(value) | fields[i] >> (bits - 1U) << 31U);
    }
}

}  // namespace
}  // namespace gradsieve::codec

// Payload kernels of exponential dithering: the same operations as codec/stages/exponential_dither.hpp, lane by lane.
// Part of payload_kernels.inl.
#pragma once

#include "codec/dither_kernel.inl"
#include "codec/exponential_step.hpp"
#include "codec/payload_kernels.hpp"

namespace gradsieve::codec {
namespace {

/// Sizes between their levels.
struct LevelLanes {
    Integers depth;  ///< of the lower one
    Floats lower, upper;
};
[[gnu::always_inline]] inline LevelLanes levels_around(const ExponentialStep& step, Floats size) {
    const Floats below = __builtin_convertvector(0x3F800000 - reinterpret_cast<Integers>(size), Floats);
    Integers depth = __builtin_convertvector(below * step.per_bit + 0.01F, Integers) + 1;
    depth = depth < step.levels ? depth : Integers{} + step.levels;
    depth += cells_at(step.above, depth) <= size;
    return {depth, cells_at(step.above + 1, depth), cells_at(step.above, depth)};
}
/// The same for base 2 without tables, where the lower level is a size's exponent. Above 1, which has no upper one, it
/// says 2: nothing goes up from a level.
[[gnu::always_inline]] inline LevelLanes powers_around(const ExponentialStep& step, Floats size) {
    const Floats lowest = Floats{} + step.above[step.levels];
    const Integers is_low = size < lowest;
    const Integers bits = reinterpret_cast<Integers>(size);
    const Integers power = bits & 0x7F800000 & ~is_low;
    const Floats lower = reinterpret_cast<Floats>(power);
    return {is_low != 0 ? Integers{} + step.levels : 127 - (bits >> 23), lower, is_low != 0 ? lowest : lower * 2.0F};
}
[[gnu::always_inline]] inline bool is_of_two(const ExponentialStep& step) {
    return step.levels == 1 || step.above[2] == 0.5F;
}

template <bool kIsOfTwo>
[[gnu::always_inline]] inline DitheredLanes exponential_lanes(const ExponentialStep& step, Floats values,
                                                              Words random) {
    const Words bits = reinterpret_cast<Words>(values);
    const Floats scaled = reinterpret_cast<Floats>(bits & 0x7FFFFFFFU) * step.to_levels;
    const Floats size = (scaled < 0x1p24F ? scaled : Floats{} + 0x1p24F) * 0x1p-24F;
    const LevelLanes levels = kIsOfTwo ? powers_around(step, size) : levels_around(step, size);
    const Floats lower = levels.lower;
    const Floats upper = levels.upper;
    const Words word = step.is_biased ? Words{} + 0x7FFFFFFFU : random;
    const Floats share = __builtin_convertvector(reinterpret_cast<Integers>(word >> 8U), Floats) * 0x1p-24F;
    const Integers is_up = share * (upper - lower) < size - lower;
    const Floats decoded = (is_up != 0 ? upper : lower) * step.scale;
    const Integers is_sent = decoded > 0.0F;
    const std::int32_t top = (1 << (step.bits - 1U)) - 1;
    const Words level = reinterpret_cast<Words>((top - (levels.depth + is_up)) & is_sent);
    const Words sign = bits & 0x80000000U & reinterpret_cast<Words>(is_sent);
    return {reinterpret_cast<Floats>(reinterpret_cast<Words>(decoded) | sign), level | (sign >> (32U - step.bits))};
}

template <bool kIsOfTwo>
[[gnu::always_inline]] inline void exponential_dense_of(const ExponentialStep& step, const float* values,
                                                        std::uint32_t count, std::byte* ret_codes, float* ret_decoded,
                                                        float* ret_left) {
    for (std::uint32_t first = 0; first < count; first += kRunElements) {
        const std::uint32_t valid = count - first < kRunElements ? count - first : kRunElements;
        Floats run[kRunVectors] = {};
        copy_part<float, kRunElements>(run, values + first, valid);
        Floats decoded[kRunVectors];
        Words codes[kRunVectors];
        for (unsigned j = 0; j < kRunVectors; j += 2) {
            RandomPair random = {};
            if (!step.is_biased) random = random_pair(step.random, step.first_element + first + j * kLanes);
            const DitheredLanes lanes[2] = {exponential_lanes<kIsOfTwo>(step, run[j], random.first),
                                            exponential_lanes<kIsOfTwo>(step, run[j + 1], random.second)};
            for (unsigned k = 0; k < 2; ++k) {
                decoded[j + k] = lanes[k].decoded;
                codes[j + k] = lanes[k].codes;
            }
        }
        if (ret_left != nullptr) {
            Floats left[kRunVectors];
            for (unsigned j = 0; j < kRunVectors; ++j) left[j] = run[j] - decoded[j];
            copy_part<float, kRunElements>(ret_left + first, left, valid);
        }
        if (ret_decoded != nullptr) copy_part<float, kRunElements>(ret_decoded + first, decoded, valid);
        std::byte* out = ret_codes + std::size_t{first} / 8 * step.bits;
        if (valid == kRunElements) {
            pack_run(codes, step.bits, out);
        } else {
            std::byte packed[kRunElements + 8];
            pack_run(codes, step.bits, packed);
            copy_bytes(out, packed, (valid * step.bits + 7) / 8);
        }
    }
}

void exponential_dense(const ExponentialStep& shared_step, const float* values, std::uint32_t count,
                       std::byte* ret_codes, float* ret_decoded, float* ret_left) {
    const ExponentialStep step = shared_step;
    if (is_of_two(step)) return exponential_dense_of<true>(step, values, count, ret_codes, ret_decoded, ret_left);
    exponential_dense_of<false>(step, values, count, ret_codes, ret_decoded, ret_left);
}

std::uint32_t exponential_list(const ExponentialStep& shared_step, const float* values, const std::uint32_t* indices,
                               std::uint32_t count, float* ret_decoded, std::uint8_t* ret_codes) {
    const ExponentialStep step = shared_step;
    std::uint32_t sent = 0;
    for (std::uint32_t first = 0; first < count; first += kLanes) {
        const std::uint32_t valid = count - first < kLanes ? count - first : kLanes;
        Floats value = {};
        std::uint32_t index[kLanes] = {};
        copy_part<float, kLanes>(&value, values + first, valid);
        copy_part<std::uint32_t, kLanes>(index, indices + first, valid);
        const DitheredLanes lanes =
            exponential_lanes<false>(step, value, random_words_at(step.random, step.first_element, index));
        const Octets codes = __builtin_convertvector(lanes.codes, Octets);
        copy_part<float, kLanes>(ret_decoded + first, &lanes.decoded, valid);
        copy_part<std::uint8_t, kLanes>(ret_codes + first, &codes, valid);
        for (std::uint32_t i = 0; i < valid; ++i) sent += codes[i] != 0 ? 1U : 0U;
    }
    return sent;
}

}  // namespace
}  // namespace gradsieve::codec

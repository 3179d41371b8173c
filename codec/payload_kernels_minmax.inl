// Payload kernels of minmax: the same operations as codec/stages/minmax.hpp, lane by lane. Part of payload_kernels.inl.
#pragma once

#include "codec/dither_kernel.inl"
#include "codec/minmax_step.hpp"
#include "codec/payload_kernels.hpp"

namespace gradsieve::codec {
namespace {

void find_range(const float* values, std::uint32_t count, float* ret_least, float* ret_largest) {
    float least = values[0];
    float largest = values[0];
    const std::uint32_t whole = count / kRunElements * kRunElements;
    if (whole > 0) {
        Floats low[kRunVectors];
        Floats high[kRunVectors];
        __builtin_memcpy(low, values, sizeof(low));
        __builtin_memcpy(high, values, sizeof(high));
        for (std::uint32_t first = kRunElements; first < whole; first += kRunElements) {
            Floats run[kRunVectors];
            __builtin_memcpy(run, values + first, sizeof(run));
            for (unsigned j = 0; j < kRunVectors; ++j) {
                low[j] = run[j] < low[j] ? run[j] : low[j];
                high[j] = run[j] > high[j] ? run[j] : high[j];
            }
        }
        for (unsigned j = 0; j < kRunVectors; ++j)
            for (unsigned lane = 0; lane < kLanes; ++lane) {
                least = low[j][lane] < least ? low[j][lane] : least;
                largest = high[j][lane] > largest ? high[j][lane] : largest;
            }
    }
    for (std::uint32_t i = whole; i < count; ++i) {
        least = values[i] < least ? values[i] : least;
        largest = values[i] > largest ? values[i] : largest;
    }
    *ret_least = least;
    *ret_largest = largest;
}

/// At most a tile's values: 128 squares of a lane and vector, each at most 2^22, stay below 2^32.
std::uint64_t whole_squares(const float* values, std::uint32_t count, float units) {
    constexpr auto kMost = static_cast<float>(kSquareUnits);
    Words sums[kRunVectors] = {};
    for (std::uint32_t first = 0; first < count; first += kRunElements) {
        const std::uint32_t valid = count - first < kRunElements ? count - first : kRunElements;
        Floats run[kRunVectors] = {};
        copy_part<float, kRunElements>(run, values + first, valid);
        for (unsigned j = 0; j < kRunVectors; ++j) {
            const Floats scaled =
                reinterpret_cast<Floats>(reinterpret_cast<Words>(run[j]) & 0x7FFFFFFFU) * (Floats{} + units);
            const Floats limited = scaled < kMost ? scaled : Floats{} + kMost;
            const auto whole = reinterpret_cast<Words>(__builtin_convertvector(limited, Integers));
            sums[j] += whole * whole;
        }
    }
    std::uint64_t sum = 0;
    for (unsigned j = 0; j < kRunVectors; ++j)
        for (unsigned lane = 0; lane < kLanes; ++lane) sum += sums[j][lane];
    return sum;
}

[[gnu::always_inline]] inline DitheredLanes minmax_lanes(const MinMaxStep& step, Floats values, Words random) {
    const Floats low = Floats{} + step.unit.low;
    const Floats above = values > low ? values - low : Floats{};
    const Floats exact = above * (Floats{} + step.unit.to_levels);
    const Floats most = Floats{} + step.most;
    const auto whole = reinterpret_cast<Words>(__builtin_convertvector(exact < most ? exact : most, Integers));
    const Words level = (whole + (random >> (32U - kMinMaxFractionBits))) >> kMinMaxFractionBits;
    const Floats steps =
        __builtin_convertvector(reinterpret_cast<Integers>(level), Floats) * (Floats{} + step.step_size);
    return {(Floats{} + step.unit.sent_low) + steps, level};
}

void minmax_dense(const MinMaxStep& shared_step, const float* values, std::uint32_t count, std::byte* ret_codes,
                  float* ret_decoded, float* ret_left) {
    const MinMaxStep step = shared_step;
    for (std::uint32_t first = 0; first < count; first += kRunElements) {
        const std::uint32_t valid = count - first < kRunElements ? count - first : kRunElements;
        Floats run[kRunVectors] = {};
        copy_part<float, kRunElements>(run, values + first, valid);
        Floats decoded[kRunVectors];
        Words codes[kRunVectors];
#pragma GCC unroll 4
        for (unsigned j = 0; j < kRunVectors; j += 2) {
            const RandomPair random = random_pair(step.random, step.first_element + first + j * kLanes);
            const DitheredLanes one = minmax_lanes(step, run[j], random.first);
            const DitheredLanes other = minmax_lanes(step, run[j + 1], random.second);
            decoded[j] = one.decoded;
            decoded[j + 1] = other.decoded;
            codes[j] = one.codes;
            codes[j + 1] = other.codes;
        }
        if (ret_left != nullptr) {
            Floats left[kRunVectors];
            for (unsigned j = 0; j < kRunVectors; ++j) left[j] = run[j] - decoded[j];
            copy_part<float, kRunElements>(ret_left + first, left, valid);
        }
        if (ret_decoded != nullptr) copy_part<float, kRunElements>(ret_decoded + first, decoded, valid);
        std::byte* out = ret_codes + std::size_t{first} / 8 * step.bits;
        if (valid < kRunElements) {  // what lies behind the end may have a code, where the minimum is negative
            for (unsigned j = 0; j < kRunVectors; ++j) {
                const auto exists = reinterpret_cast<Words>(reinterpret_cast<Integers>(lane_numbers() + j * kLanes) <
                                                            static_cast<std::int32_t>(valid));
                codes[j] &= exists;
            }
            std::byte packed[kRunElements + 8];
            pack_run(codes, step.bits, packed);
            copy_bytes(out, packed, (valid * step.bits + 7) / 8);
        } else {
            pack_run(codes, step.bits, out);
        }
    }
}

}  // namespace
}  // namespace gradsieve::codec

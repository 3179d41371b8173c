// Dithering of consecutive elements in vectors: levels, what they decode to, and codes packed into fields. For files
// that are compiled once per instruction set (payload_kernels.inl, dense_pass_kernel.hpp); internal linkage. The same
// operations as codec/stages/dither.hpp, lane by lane.
#pragma once

#include "codec/dither_step.hpp"
#include "codec/random_kernel.inl"

namespace gradsieve::codec {
namespace {

struct DitheredLanes {
    Floats decoded;
    Words codes;
};
[[gnu::always_inline]] inline DitheredLanes dither_lanes(const DitherStep& step, Floats values, Words random) {
    const Words bits = reinterpret_cast<Words>(values);
    const Floats exact = reinterpret_cast<Floats>(bits & 0x7FFFFFFFU) * step.to_levels;
    const Floats most = Floats{} + step.most;
    const auto whole = reinterpret_cast<Words>(__builtin_convertvector(exact < most ? exact : most, Integers));
    const Words level = (whole + (random >> 8U)) >> kLevelFractionBits;
    const Words sign = bits & 0x80000000U & reinterpret_cast<Words>(level != 0);
    const Floats size = __builtin_convertvector(reinterpret_cast<Integers>(level), Floats) * step.scale;
    return {reinterpret_cast<Floats>(reinterpret_cast<Words>(size) | sign), level | (sign >> (32U - step.bits))};
}

/// A run of elements; `element` is its first one's number in the tensor, a multiple of kRunElements.
struct DitheredRun {
    Floats decoded[kRunVectors];
    Words codes[kRunVectors];
};
[[gnu::always_inline]] inline DitheredRun dither_run(const DitherStep& step, std::uint64_t element,
                                                     const Floats (&values)[kRunVectors]) {
    DitheredRun run;
#pragma GCC unroll 4
    for (unsigned j = 0; j < kRunVectors; j += 2) {
        const RandomPair random = random_pair(step.random, element + j * kLanes);
        const DitheredLanes first = dither_lanes(step, values[j], random.first);
        const DitheredLanes second = dither_lanes(step, values[j + 1], random.second);
        run.decoded[j] = first.decoded;
        run.decoded[j + 1] = second.decoded;
        run.codes[j] = first.codes;
        run.codes[j + 1] = second.codes;
    }
    return run;
}

/// The low `width` bits of eight bytes that have no others, as neighbours.
[[gnu::always_inline]] inline std::uint64_t pack_eight(std::uint64_t word, unsigned width) {
#if defined(__BMI2__)
    return _pext_u64(word, ((std::uint64_t{1} << width) - 1) * 0x0101010101010101ULL);
#else
    word = (word & 0x00FF00FF00FF00FFULL) | ((word >> 8U) & 0x00FF00FF00FF00FFULL) << width;
    word = (word & 0x0000FFFF0000FFFFULL) | ((word >> 16U) & 0x0000FFFF0000FFFFULL) << (2 * width);
    return (word & 0x00000000FFFFFFFFULL) | (word >> 32U) << (4 * width);
#endif
}

/// And back.
[[gnu::always_inline]] inline std::uint64_t unpack_eight(std::uint64_t word, unsigned width) {
    const std::uint64_t fields = ((std::uint64_t{1} << width) - 1) * 0x0101010101010101ULL;
#if defined(__BMI2__)
    return _pdep_u64(word, fields);
#else
    word = (word & 0xFFFFFFFFULL) | (word >> (4 * width)) << 32U;
    word = (word & 0x0000FFFF0000FFFFULL) | ((word >> (2 * width)) & 0x0000FFFF0000FFFFULL) << 16U;
    word = (word & 0x00FF00FF00FF00FFULL) | ((word >> width) & 0x00FF00FF00FF00FFULL) << 8U;
    return word & fields;
#endif
}

/// Writes a run's codes, 4 `width` bytes and up to six behind them.
[[gnu::always_inline]] inline void pack_run(const Words (&codes)[kRunVectors], unsigned width, std::byte* out) {
    alignas(64) std::uint8_t bytes[kRunElements];
    for (unsigned j = 0; j < kRunVectors; ++j) {
        const Octets octets = __builtin_convertvector(codes[j], Octets);
        __builtin_memcpy(bytes + j * kLanes, &octets, sizeof(octets));
    }
    for (unsigned group = 0; group < kRunElements / 8; ++group) {
        std::uint64_t word = 0;
        __builtin_memcpy(&word, bytes + 8 * group, sizeof(word));
        word = pack_eight(word, width);
        __builtin_memcpy(out + group * width, &word, sizeof(word));
    }
}

}  // namespace
}  // namespace gradsieve::codec

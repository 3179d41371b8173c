// Natural compression of elements in vectors. For files that are compiled once per instruction set
// (payload_kernels.inl, dense_pass_kernel.hpp); internal linkage. The same operations as codec/stages/natural.hpp, lane
// by lane.
#pragma once

#include "codec/natural_step.hpp"
#include "codec/random_kernel.inl"

namespace gradsieve::codec {
namespace {

struct NaturalLanes {
    Floats decoded;
    Words codes;
};
[[gnu::always_inline]] inline NaturalLanes natural_lanes(float factor, Floats values, Words random) {
    const Words bits = reinterpret_cast<Words>(values);
    const Words sign = bits & 0x80000000U;
    const Words scaled = reinterpret_cast<Words>(reinterpret_cast<Floats>(bits & 0x7FFFFFFFU) * factor);
    // Signed, since that is what baseline vectors can compare.
    const auto has_code = reinterpret_cast<Words>(reinterpret_cast<Integers>(scaled) >=
                                                  static_cast<std::int32_t>(kLeastNaturalExponent << 23U));
    const auto rounded = reinterpret_cast<Integers>((scaled + (random >> kNaturalUnusedBits)) >> 23U);
    const Integers most = Integers{} + static_cast<std::int32_t>(kMostNaturalExponent);
    const auto exponent = reinterpret_cast<Words>(rounded < most ? rounded : most);
    return {reinterpret_cast<Floats>(((exponent << 23U) | sign) & has_code),
            ((exponent - kNaturalExponentOffset) | sign >> 24U) & has_code};
}

/// A run of elements; `element` is its first one's number in the tensor, a multiple of kRunElements.
struct NaturalRun {
    Floats decoded[kRunVectors];
    std::uint8_t codes[kRunElements];
};
[[gnu::always_inline]] inline NaturalRun natural_run(const NaturalStep& step, std::uint64_t element,
                                                     const Floats (&values)[kRunVectors]) {
    NaturalRun run;
#pragma GCC unroll 4
    for (unsigned j = 0; j < kRunVectors; j += 2) {
        const RandomPair random = random_pair(step.random, element + j * kLanes);
        const NaturalLanes first = natural_lanes(step.factor, values[j], random.first);
        const NaturalLanes second = natural_lanes(step.factor, values[j + 1], random.second);
        run.decoded[j] = first.decoded;
        run.decoded[j + 1] = second.decoded;
        const Octets octets[2] = {__builtin_convertvector(first.codes, Octets),
                                  __builtin_convertvector(second.codes, Octets)};
        __builtin_memcpy(run.codes + j * kLanes, octets, sizeof(octets));
    }
    return run;
}

/// What codes decode to.
[[gnu::always_inline]] inline Floats natural_values(Words codes) {
    const Words size = codes & 0x7FU;
    const Words bits = (size + kNaturalExponentOffset) << 23U & reinterpret_cast<Words>(size != 0);
    return reinterpret_cast<Floats>(bits | (codes & 0x80U) << 24U);
}

}  // namespace
}  // namespace gradsieve::codec

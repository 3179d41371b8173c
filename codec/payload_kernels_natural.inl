// Payload kernels of natural compression. Part of payload_kernels.inl.
#pragma once

#include "codec/natural_kernel.inl"
#include "codec/payload_kernels.hpp"

namespace gradsieve::codec {
namespace {

void natural_dense(const NaturalStep& shared_step, const float* values, std::uint32_t count, std::byte* ret_codes,
                   float* ret_decoded) {
    const NaturalStep step = shared_step;
    for (std::uint32_t first = 0; first < count; first += kRunElements) {
        const std::uint32_t valid = count - first < kRunElements ? count - first : kRunElements;
        Floats run[kRunVectors] = {};
        copy_part<float, kRunElements>(run, values + first, valid);
        const NaturalRun rounded = natural_run(step, step.first_element + first, run);
        copy_part<float, kRunElements>(ret_decoded + first, rounded.decoded, valid);
        copy_part<std::uint8_t, kRunElements>(ret_codes + first, rounded.codes, valid);
    }
}

std::uint32_t natural_list(const NaturalStep& shared_step, const float* values, const std::uint32_t* indices,
                           std::uint32_t count, float* ret_decoded, std::uint8_t* ret_codes) {
    const NaturalStep step = shared_step;
    std::uint32_t sent = 0;
    for (std::uint32_t first = 0; first < count; first += kLanes) {
        const std::uint32_t valid = count - first < kLanes ? count - first : kLanes;
        Floats value = {};
        std::uint32_t index[kLanes] = {};
        copy_part<float, kLanes>(&value, values + first, valid);
        copy_part<std::uint32_t, kLanes>(index, indices + first, valid);
        const NaturalLanes lanes =
            natural_lanes(step.factor, value, random_words_at(step.random, step.first_element, index));
        const Octets codes = __builtin_convertvector(lanes.codes, Octets);
        copy_part<float, kLanes>(ret_decoded + first, &lanes.decoded, valid);
        copy_part<std::uint8_t, kLanes>(ret_codes + first, &codes, valid);
        for (std::uint32_t i = 0; i < valid; ++i) sent += codes[i] != 0 ? 1U : 0U;
    }
    return sent;
}

}  // namespace
}  // namespace gradsieve::codec

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, Parallel Random Numbers: As Easy as 1, 2, 3): random words as a
// function of a counter and a key, so that any thread of any device draws those of any element, and a step that is
// repeated draws them again. Must hold no state. Any thread; plain values.
#pragma once

#include "base/id.hpp"
#include "codec/element.hpp"

namespace gradsieve::codec {

inline constexpr unsigned kPhiloxRounds = 10;
inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53U;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57U;
inline constexpr std::uint32_t kPhiloxIncrement0 = 0x9E3779B9U;
inline constexpr std::uint32_t kPhiloxIncrement1 = 0xBB67AE85U;
/// What the words are for, in the counter's upper half of the second word: rounding.
inline constexpr std::uint32_t kRoundingPurpose = 1U << 24U;

struct PhiloxKey {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
};
/// A counter, or the words that it gives.
struct PhiloxBlock {
    std::uint32_t words[4] = {};
};

GRADSIEVE_HOST_DEVICE inline PhiloxBlock philox(PhiloxBlock counter, PhiloxKey key) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (unsigned round = 0; round < kPhiloxRounds; ++round) {
        const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * counter.words[0];
        const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * counter.words[2];
        const std::uint32_t second = counter.words[1];
        const std::uint32_t fourth = counter.words[3];
        counter.words[0] = static_cast<std::uint32_t>(product1 >> 32U) ^ second ^ key.low;
        counter.words[1] = static_cast<std::uint32_t>(product1);
        counter.words[2] = static_cast<std::uint32_t>(product0 >> 32U) ^ fourth ^ key.high;
        counter.words[3] = static_cast<std::uint32_t>(product0);
        key.low += kPhiloxIncrement0;
        key.high += kPhiloxIncrement1;
    }
    return counter;
}

/// The random words of one tensor's rounding in one step on one node.
struct RandomStream {
    PhiloxKey key;
    std::uint32_t step_low = 0;
    std::uint32_t step_high = 0;
};

/// The counter of elements 4 `block` .. 4 `block` + 3 of the tensor; word e of the answer belongs to element
/// 4 `block` + e. `block` < 2^56.
GRADSIEVE_HOST_DEVICE inline PhiloxBlock rounding_counter(const RandomStream& stream, std::uint64_t block) {
    return {{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U) | kRoundingPurpose,
             stream.step_low, stream.step_high}};
}

/// EncodeRequest::random_seed of a job on a node: the same wherever and whenever that node goes on with it.
[[nodiscard]] constexpr std::uint64_t rounding_seed(std::string_view job, std::string_view node) noexcept {
    return mix64(tensor_id(job)) + tensor_id(node);
}

/// `seed`: EncodeRequest::random_seed. Streams of different seeds, tensors or steps are independent.
[[nodiscard]] inline RandomStream rounding_stream(std::uint64_t seed, TensorId tensor, Step step) noexcept {
    const std::uint64_t key = mix64(mix64(seed) + tensor);
    return {{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32U)},
            static_cast<std::uint32_t>(step),
            static_cast<std::uint32_t>(step >> 32U)};
}

}  // namespace gradsieve::codec

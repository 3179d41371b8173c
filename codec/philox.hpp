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

/// One round.
GRADSIEVE_HOST_DEVICE inline PhiloxBlock philox_round(const PhiloxBlock& state, PhiloxKey key) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * state.words[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * state.words[2];
    return {{static_cast<std::uint32_t>(product1 >> 32U) ^ state.words[1] ^ key.low,
             static_cast<std::uint32_t>(product1),
             static_cast<std::uint32_t>(product0 >> 32U) ^ state.words[3] ^ key.high,
             static_cast<std::uint32_t>(product0)}};
}

/// The words of a counter.
GRADSIEVE_HOST_DEVICE inline PhiloxBlock philox(PhiloxBlock counter, PhiloxKey key) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (unsigned round = 0; round < kPhiloxRounds; ++round) {
        counter = philox_round(counter, key);
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

/// What of a stream's rounds all blocks below 2^32 share: of the first two rounds more than the keys, since there only
/// the first word of the counter differs. For who draws many blocks; 128 bits at a time are read of it.
struct alignas(16) StreamRounds {
    std::uint32_t first_high;  ///< what the third word that the first round gives is combined with
    std::uint32_t second_low;  ///< the first and the third word that the second one gives
    std::uint32_t second_high;
    std::uint32_t zero;  ///< 0, which compilers do not know
    /// Keys, low and high, of the others. The first one's high half has the fourth word, which is the same too, in it.
    std::uint32_t later[kPhiloxRounds - 2][2];
};

[[nodiscard]] inline StreamRounds stream_rounds(const RandomStream& stream) noexcept {
    StreamRounds rounds{};
    PhiloxKey key = stream.key;
    const auto advance = [&key] {
        key.low += kPhiloxIncrement0;
        key.high += kPhiloxIncrement1;
    };
    const std::uint64_t product = std::uint64_t{kPhiloxMultiplier1} * stream.step_low;
    rounds.first_high = stream.step_high ^ key.high;
    const std::uint32_t first_low = static_cast<std::uint32_t>(product >> 32U) ^ kRoundingPurpose ^ key.low;
    advance();
    const std::uint64_t second_product = std::uint64_t{kPhiloxMultiplier0} * first_low;
    rounds.second_low = static_cast<std::uint32_t>(product) ^ key.low;
    rounds.second_high = static_cast<std::uint32_t>(second_product >> 32U) ^ key.high;
    for (auto& later : rounds.later) {
        advance();
        later[0] = key.low;
        later[1] = key.high;
    }
    rounds.later[0][1] ^= static_cast<std::uint32_t>(second_product);
    return rounds;
}

/// philox of rounding_counter of the stream, for `block` < 2^32.
GRADSIEVE_HOST_DEVICE inline PhiloxBlock random_block(const StreamRounds& rounds, std::uint32_t block) {
    const std::uint64_t first = std::uint64_t{kPhiloxMultiplier0} * block;
    const std::uint32_t third = static_cast<std::uint32_t>(first >> 32U) ^ rounds.first_high;
    const std::uint64_t second = std::uint64_t{kPhiloxMultiplier1} * third;
    PhiloxBlock state{{static_cast<std::uint32_t>(second >> 32U) ^ rounds.second_low,
                       static_cast<std::uint32_t>(second), static_cast<std::uint32_t>(first) ^ rounds.second_high, 0}};
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (unsigned round = 0; round < kPhiloxRounds - 2; ++round)
        state = philox_round(state, {rounds.later[round][0], rounds.later[round][1]});
    return state;
}

/// EncodeRequest::random_seed of a job on a node: the same wherever and whenever that node goes on with it.
[[nodiscard]] constexpr std::uint64_t rounding_seed(std::string_view job, std::string_view node) noexcept {
    return mix64(tensor_id(job)) + tensor_id(node);
}

/// EncodeRequest::selection_seed of a job: the same on every node.
[[nodiscard]] constexpr std::uint64_t selection_seed(std::string_view job) noexcept { return mix64(tensor_id(job)); }

/// `seed`: EncodeRequest::random_seed. Streams of different seeds, tensors or steps are independent.
[[nodiscard]] inline RandomStream rounding_stream(std::uint64_t seed, TensorId tensor, Step step) noexcept {
    const std::uint64_t key = mix64(mix64(seed) + tensor);
    return {{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32U)},
            static_cast<std::uint32_t>(step),
            static_cast<std::uint32_t>(step >> 32U)};
}

}  // namespace gradsieve::codec

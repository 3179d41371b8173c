// The numbers that name things in every layer, and the one hash behind them. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradsieve {

using Step = std::uint64_t;          ///< one training iteration of a group, from 1; 0 = none yet
using Epoch = std::uint64_t;         ///< one life of a job
using ElementCount = std::uint64_t;  ///< elements of a tensor
using ByteCount = std::uint64_t;
using Rank = std::uint32_t;       ///< global rank of a training process, 0 .. world_size-1
using PeerIndex = std::uint32_t;  ///< position of a node in the configuration
using TensorId = std::uint64_t;   ///< hash of the tensor's name, so late tensors move nobody

/// A tile is the unit of scales and of summation trees; part of every format.
inline constexpr ElementCount kTileElements = 4096;
/// A chunk is coded and sent as one record.
inline constexpr ElementCount kChunkElements = ElementCount{1} << 20U;

/// Bijective 64-bit finalizer (splitmix64's constants): spreads every input bit over the whole word.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t value) noexcept {
    value ^= value >> 30U;
    value *= 0xBF58476D1CE4E5B9ULL;
    value ^= value >> 27U;
    value *= 0x94D049BB133111EBULL;
    return value ^ (value >> 31U);
}

/// FNV-1a over the name, then mix64: the id of a tensor. Same on every node and release.
[[nodiscard]] constexpr TensorId tensor_id(std::string_view name) noexcept {
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    for (const char character : name) {
        hash ^= static_cast<unsigned char>(character);
        hash *= 0x100000001B3ULL;
    }
    return mix64(hash);
}

}  // namespace gradsieve

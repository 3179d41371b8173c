// Which life of a job made a state: codecs whose nodes keep one state together (delta) can go on only from generations
// that one life made on all nodes, and each generation says it, in the array "epoch" of its tensors.
// docs/state-format.md. Reading trusts nothing. Plain values; any thread.
#pragma once

#include "shm/state_segment.hpp"

#include <optional>
#include <span>
#include <string_view>

namespace gradsieve::daemon {

/// Its name, as the codec has it.
inline constexpr std::string_view kEpochArray = "epoch";

/// Which of a group's arrays speaks for all of them: the first with 64 bits, else the first.
struct EpochPlace {
    std::size_t tensor = 0;  ///< of the table
    std::size_t array = 0;   ///< of the tensor
    ByteCount bytes = 0;     ///< 4 or 8
};
/// Nothing: no codec of the group keeps one.
[[nodiscard]] std::optional<EpochPlace> find_epoch(const shm::StateTable& table, std::uint32_t group);

/// Of what was kept: 0 if any life's is as good; nothing if it should say one and does not.
using KeptEpoch = std::optional<Epoch>;
[[nodiscard]] KeptEpoch parse_epoch(std::span<const std::byte> bytes) noexcept;
/// Of a step that the group can go on from.
[[nodiscard]] KeptEpoch kept_epoch(shm::StateSegment& state, std::uint32_t group, Step step);

}  // namespace gradsieve::daemon

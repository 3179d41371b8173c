// Memory of a job's state on GPUs: made, or taken up by descriptors and checked, filled, and read for snapshots. On the
// thread that owns the GPUs' contexts, or after it has ended; every call waits for the GPUs.
#pragma once

#include "base/unique_fd.hpp"
#include "codec/cuda/shareable_memory.hpp"
#include "shm/state_placement.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gradsieve::daemon {

/// A range of floats in one part.
struct StateRange {
    std::size_t part = 0;
    std::uint64_t offset_bytes = 0;
    ElementCount elements = 0;
};

/// The parts of a placement in this process's GPUs.
using PartMemory = std::vector<codec::cuda::ShareableMemory>;

/// Takes the parts up and looks whether they are those of the placement. `descriptors` stay the caller's. Errors:
/// kCorrupt (other memory), kInvalidArgument (smaller, or no device memory), kUnavailable; naming the GPU.
[[nodiscard]] Result<PartMemory> open_parts(const shm::StatePlacement& placement, std::span<const int> ordinals,
                                            std::span<const UniqueFd> descriptors);
/// Values between a part and the host.
[[nodiscard]] Status read_range(const PartMemory& memory, const StateRange& range, std::span<float> ret_values);

/// What a job wants of its state's memory before its first pass.
struct GpuStateSetup {
    shm::StatePlacement placement;
    std::vector<int> ordinals;  ///< of the parts' GPUs
    /// One for each part that is there; none: the parts are made, all zeros, and these are the answer.
    std::vector<UniqueFd> descriptors;
    bool is_new = false;
    /// Where values are that go over to new parts: the same job's, on other GPUs or laid out otherwise.
    struct Source {
        shm::StatePlacement placement;
        std::vector<int> ordinals;
        std::vector<UniqueFd> descriptors;
    };
    std::optional<Source> source{};
    struct Move {
        StateRange from;
        StateRange to;
    };
    std::vector<Move> moves{};
    std::vector<StateRange> zeros{};
    struct Fill {
        StateRange range;
        std::span<const float> values;  ///< the job's, on the host
    };
    std::vector<Fill> fills{};
    // answer
    PartMemory memory{};
};
/// Errors: kResourceExhausted with the figures; as open_parts. Nothing is there then.
[[nodiscard]] Status set_up_state(GpuStateSetup& inout_setup);

}  // namespace gradsieve::daemon

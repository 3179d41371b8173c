// Which device codes what, where a job has several: ranges of whole chunks, since a chunk is coded as a unit, so that
// no byte depends on how many devices there are. Knows no CUDA. Any thread.
#pragma once

#include "base/id.hpp"

#include <span>
#include <vector>

namespace gradsieve::codec::cuda {

/// A device's share of a tensor: begins at a chunk, and ends at one or at the tensor's end.
struct DeviceRange {
    ElementCount first = 0;
    ElementCount elements = 0;

    [[nodiscard]] constexpr ElementCount end() const noexcept { return first + elements; }
    [[nodiscard]] constexpr std::uint32_t first_chunk() const noexcept {
        return static_cast<std::uint32_t>(first / kChunkElements);
    }
    bool operator==(const DeviceRange&) const = default;
};

/// Cuts every tensor of `elements` (one number each) into `devices` ranges, ascending, together the whole tensor; some
/// may be empty. The largest tensors first, each so that all devices have about as much of what was cut so far; a
/// tensor of one chunk goes where least is, and so does one of `is_whole` (by tensor; empty: of none), whatever its
/// size. The same for the same numbers everywhere. `devices`: at least 1.
[[nodiscard]] std::vector<std::vector<DeviceRange>> split_over_devices(std::span<const ElementCount> elements,
                                                                       std::size_t devices,
                                                                       const std::vector<bool>& is_whole = {});

}  // namespace gradsieve::codec::cuda

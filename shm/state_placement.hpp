// Where the arrays of a state lie that are on GPUs: which GPUs, how much of each, and which range of each array at
// which offset. It is known later than the table (only once ranks have bound their memory), so it has a room of its own
// in the segment; docs/state-format.md. Parsing reads untrusted bytes. Plain values; any thread.
#pragma once

#include "shm/state_table.hpp"

#include <array>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::shm {

/// What one GPU holds of a job's state: one allocation, which a descriptor of its own names.
struct DevicePart {
    std::string gpu;        ///< UUID
    ByteCount bytes = 0;    ///< of the allocation
    std::uint64_t key = 0;  ///< stands in the allocation, too: it is this state's and no other's
    bool operator==(const DevicePart&) const = default;
};
/// A range of a tensor's arrays in one part.
struct StatePiece {
    std::uint32_t part = 0;
    ElementCount first = 0;
    ElementCount elements = 0;
    /// By array of the tensor and generation, in the part; 0 of arrays on the host.
    std::vector<std::array<std::uint64_t, 2>> offset_bytes{};
    bool operator==(const StatePiece&) const = default;
};
struct StatePlacement {
    std::vector<DevicePart> parts;
    /// By tensor of the table: ranges in ascending order, together the whole tensor; none if it is not on GPUs.
    std::vector<std::vector<StatePiece>> tensors;

    /// The same GPUs and places, in whatever allocations.
    [[nodiscard]] bool is_laid_out_like(const StatePlacement& other) const;
};

/// Every allocation is whole pages of this size, the size of a GPU's own pages.
inline constexpr ByteCount kDevicePageBytes = ByteCount{2} << 20U;
/// Arrays begin behind the part's mark, at multiples of this.
inline constexpr ByteCount kDeviceAlignBytes = 256;
inline constexpr std::size_t kDevicePartsLimit = 64;

/// Stands at the start of a part: "GSVPART" and a zero, the part's key, its bytes, and its place among the parts.
using DevicePartMark = std::array<std::uint64_t, 4>;
[[nodiscard]] DevicePartMark device_part_mark(const StatePlacement& placement, std::size_t place);
/// `seen` is what a part begins with. Errors: kCorrupt.
[[nodiscard]] Status check_device_part(const StatePlacement& placement, std::size_t place, const DevicePartMark& seen);

/// Most bytes that the placement of `table` on `devices` GPUs takes, head included.
[[nodiscard]] ByteCount placement_room_bytes(const StateTable& table, std::size_t devices);
/// The placement's text, without its head.
[[nodiscard]] Bytes build_placement(const StatePlacement& placement);
/// Every number is checked against `table`. Errors: kCorrupt.
[[nodiscard]] Result<StatePlacement> parse_placement(ByteView text, const StateTable& table);

}  // namespace gradsieve::shm

// What a state segment says about itself: whose state it is, of which job, and where its arrays lie, so that a daemon
// that never saw the job can take it up. The constant part of the segment, checksummed; docs/state-format.md. Parsing
// reads untrusted bytes. Plain values; any thread.
#pragma once

#include "base/bytes.hpp"
#include "base/id.hpp"
#include "base/status.hpp"

#include <array>
#include <string>
#include <vector>

namespace gradsieve::shm {

/// "GSVSTAT" and a zero, little-endian.
inline constexpr std::uint64_t kStateMagic = 0x0054415453565347ULL;
inline constexpr std::uint32_t kStateVersion = 1;
/// Numbers as this host has them: little-endian, IEEE 754 floats, two generations of each array.
inline constexpr std::uint32_t kStateAbi = 1;
inline constexpr std::uint32_t kStateReady = 0x59444552U;  ///< "REDY"
inline constexpr ByteCount kStateHeadBytes = 64;
inline constexpr ByteCount kStateAlignBytes = 4096;  ///< of every array: whole pages, which can be given back
/// Steps beyond any run; leaves room to count on.
inline constexpr Step kStateLastStep = Step{1} << 62U;

/// Where a part of the state lies. Part 0 is the segment itself; part 1, if there is one, is all that lies on GPUs, of
/// which the placement says more (state_placement.hpp).
enum class StatePlace : std::uint8_t { kHost = 0, kDevice = 1 };
inline constexpr std::uint32_t kHostPart = 0;
inline constexpr std::uint32_t kDevicesPart = 1;
struct StatePart {
    StatePlace place = StatePlace::kHost;
    ByteCount bytes = 0;  ///< on GPUs: room that the segment has for the placement
    std::string label;    ///< empty
};
/// One array of one tensor, twice: by generation.
struct StateArray {
    std::string name;  ///< "residual", "variance"
    std::uint32_t part = kHostPart;
    std::array<std::uint64_t, 2> offset_bytes{};  ///< in the segment; 0 on GPUs
    ByteCount bytes = 0;
};
[[nodiscard]] inline bool is_on_devices(const StateArray& array) noexcept { return array.part == kDevicesPart; }
struct StateTensor {
    std::string name;
    std::uint32_t group = 0;
    ElementCount elements = 0;
    std::string codec;  ///< as it was last run; opaque here
    std::vector<StateArray> arrays = {};
};
/// A tensor's first array has a float for each of its elements. The others have so, too, or, on the host, a whole
/// number of floats that are fewer: what its codec keeps besides.
[[nodiscard]] bool has_sound_size(const StateTensor& tensor, const StateArray& array) noexcept;
/// The first array does, and with it all that have a float for each element; others may lie on the host.
[[nodiscard]] inline bool is_on_devices(const StateTensor& tensor) noexcept {
    return !tensor.arrays.empty() && is_on_devices(tensor.arrays.front());
}
struct StateTable {
    std::string job_name;
    std::string run_id;
    std::uint32_t owner = 0;  ///< uid that the job's ranks run as
    std::uint32_t world_size = 1;
    Bytes spec;  ///< what all nodes had agreed on; opaque here
    std::vector<std::string> groups;
    std::vector<StateTensor> tensors;
    std::vector<StatePart> parts;
};

/// Where the words lie that change while the job runs; all are 64 bits wide.
struct StateLayout {
    ByteCount constant_bytes = 0;
    std::uint64_t words_offset = 0;
    std::uint64_t placement_offset = 0;  ///< behind the words
    ByteCount placement_room_bytes = 0;  ///< 0: nothing is on GPUs
    ByteCount header_bytes = 0;          ///< everything in front of the arrays
    ByteCount segment_bytes = 0;         ///< part 0

    [[nodiscard]] static std::uint64_t rank_words(std::uint32_t world_size) { return (world_size + 63ULL) / 64; }
    [[nodiscard]] std::uint64_t rank_word(std::uint64_t index) const { return words_offset + 8 * index; }
    /// The committed step; behind it the one before.
    [[nodiscard]] std::uint64_t committed_word(const StateTable& table, std::uint64_t group) const {
        return words_offset + 8 * (rank_words(table.world_size) + 2 * group);
    }
    /// The first of stamp, validity and scale.
    [[nodiscard]] std::uint64_t generation_word(const StateTable& table, std::uint64_t tensor,
                                                std::uint64_t generation) const {
        return words_offset +
               8 * (rank_words(table.world_size) + 2 * table.groups.size() + 3 * (2 * tensor + generation));
    }
};

/// Where the placement says how long it is, its checksum, and that it is whole.
inline constexpr ByteCount kPlacementHeadBytes = 24;
/// "PLCD".
inline constexpr std::uint32_t kStatePlaced = 0x44434C50U;

/// Fills the parts and the arrays' offsets; arrays come with name, bytes and part. With arrays on GPUs the segment has
/// room for a placement on `devices` of them, at most. Errors: kInvalidArgument (sizes overflow).
[[nodiscard]] Result<StateLayout> lay_out_state(StateTable& inout_table, std::size_t devices = 1);
/// Head and constant part, without the ready mark. `inode`: of the memory they will lie in.
[[nodiscard]] Bytes build_state_table(const StateTable& table, const StateLayout& layout, std::uint64_t inode);

/// The table's bytes alone, and back. Errors: kCorrupt (layout only: names, sizes and places are not checked).
[[nodiscard]] Bytes build_state_description(const StateTable& table);
[[nodiscard]] Result<StateTable> parse_state_description(ByteView bytes);

struct ParsedState {
    StateTable table;
    StateLayout layout;
};
/// `segment`: all of part 0. Every number is checked before use. Errors: kVersionMismatch (both versions), kCorrupt
/// (magic, inode, checksum, not ready, or a number out of range: which).
[[nodiscard]] Result<ParsedState> parse_state_table(ByteView segment, std::uint64_t inode);

/// XXH3-64: of the first 48 bytes and the constant part, and of snapshots.
[[nodiscard]] std::uint64_t state_checksum(ByteView bytes) noexcept;

/// A count, up to `limit`, of things of at least one byte each; zero, and the reader fails, if they cannot be there.
[[nodiscard]] std::uint64_t read_count(ByteReader& reader, std::uint64_t limit);

/// "kept state: WHAT: allowed is ALLOWED; it is dropped".
[[nodiscard]] Status corrupt_state(const std::string& what, const std::string& allowed);

}  // namespace gradsieve::shm

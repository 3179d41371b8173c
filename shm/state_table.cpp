// Builds and parses the constant part of a state segment. No length is believed before it was compared with what is
// left, and no offset before it was compared with the segment. Any thread; owns nothing.
#include "shm/state_table.hpp"

#include "shm/message.hpp"
#include "shm/state_placement.hpp"

#define XXH_INLINE_ALL  // the hash's state on the stack, and no library to find at run time
#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <set>

namespace gradsieve::shm {
namespace {

constexpr std::size_t kTextLimitBytes = 64U << 10U;
constexpr std::size_t kArraysLimit = 16;
constexpr std::size_t kPartsLimit = 64;
/// Arrays behind the first one need not have a float for each element.
constexpr ByteCount kMostBytesOfLaterArrays = 8;
constexpr ByteCount kMostBytesBesideElements = ByteCount{64} << 10U;
constexpr std::size_t kHashedHeadBytes = 48;
/// More than 65,536 tensors on 64 GPUs need.
constexpr ByteCount kPlacementLimitBytes = ByteCount{1} << 32U;

std::uint64_t checksum_of(ByteView head, ByteView constant) {
    alignas(64) XXH3_state_t state{};
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, head.data(), kHashedHeadBytes);
    XXH3_64bits_update(&state, constant.data(), constant.size());
    return XXH3_64bits_digest(&state);
}

StateTensor read_tensor(ByteReader& reader) {
    StateTensor tensor;
    tensor.name = reader.read_text(kTextLimitBytes);
    tensor.group = static_cast<std::uint32_t>(std::min<std::uint64_t>(reader.read_varint(), kTensorLimit));
    tensor.elements = reader.read_varint();
    tensor.codec = reader.read_text(kTextLimitBytes);
    tensor.arrays.resize(read_count(reader, kArraysLimit));
    for (auto& array : tensor.arrays) {
        array.name = reader.read_text(kTextLimitBytes);
        array.part = static_cast<std::uint32_t>(std::min<std::uint64_t>(reader.read_varint(), kPartsLimit));
        for (auto& offset : array.offset_bytes) offset = reader.read<std::uint64_t>();
        array.bytes = reader.read<std::uint64_t>();
    }
    return tensor;
}

Status check_array(const StateTensor& tensor, const StateArray& array, const StateLayout& layout,
                   std::set<std::uint64_t>& inout_offsets) {
    const auto subject = "array '" + array.name + "' of tensor '" + tensor.name + "'";
    const auto last_part = layout.placement_room_bytes > 0 ? kDevicesPart : kHostPart;
    const bool is_in_part = array.part == tensor.arrays.front().part || array.part == kHostPart;
    if (!is_in_part || array.part > last_part)
        return corrupt_state(subject + " in part " + std::to_string(array.part),
                             "one that the table has, and the first array's or the segment");
    if (!has_sound_size(tensor, array))
        return corrupt_state(
            subject + " of " + std::to_string(array.bytes) + " bytes",
            "4 for each of its " + std::to_string(tensor.elements) +
                " elements, or behind the first array, on the host, whole numbers of 4 up to twice that and 64 KiB");
    if (is_on_devices(array)) return {};
    for (const auto offset : array.offset_bytes) {
        const auto end = checked_add(offset, array.bytes);
        if (offset % kStateAlignBytes != 0 || offset < layout.header_bytes || !end || *end > layout.segment_bytes)
            return corrupt_state(subject + " at byte " + std::to_string(offset),
                                 "whole pages between " + std::to_string(layout.header_bytes) + " and " +
                                     std::to_string(layout.segment_bytes));
        if (array.bytes > 0 && !inout_offsets.insert(offset).second)
            return corrupt_state(subject + " at byte " + std::to_string(offset) + ", where another one lies",
                                 "a place of its own");
    }
    return {};
}

/// Arrays in the order of their places do not reach into one another.
Status check_overlaps(const StateTable& table) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
    for (const auto& tensor : table.tensors)
        for (const auto& array : tensor.arrays)
            for (const auto offset : array.offset_bytes)
                if (array.bytes > 0 && !is_on_devices(array)) ranges.emplace_back(offset, offset + array.bytes);
    std::sort(ranges.begin(), ranges.end());
    for (std::size_t index = 1; index < ranges.size(); ++index)
        if (ranges[index].first < ranges[index - 1].second)
            return corrupt_state("arrays at bytes " + std::to_string(ranges[index - 1].first) + " and " +
                                     std::to_string(ranges[index].first) + " that reach into one another",
                                 "a place of its own for each");
    return {};
}

/// The segment, and perhaps what lies on GPUs: before any size is computed from them.
Status check_parts(const StateTable& table) {
    const auto& parts = table.parts;
    const bool is_known =
        !parts.empty() && parts.size() <= 2 && parts[0].place == StatePlace::kHost &&
        (parts.size() == 1 || (parts[1].place == StatePlace::kDevice && parts[1].bytes > kPlacementHeadBytes &&
                               parts[1].bytes % 64 == 0 && parts[1].bytes <= kPlacementLimitBytes));
    if (is_known) return {};
    return corrupt_state(std::to_string(parts.size()) + " parts" +
                             (parts.size() < 2 ? "" : ", the second of " + std::to_string(parts[1].bytes) + " bytes"),
                         "the segment itself and, if anything is on GPUs, room for where it lies");
}

Status check_table(const StateTable& table, const StateLayout& layout) {
    if (table.world_size == 0 || table.world_size > kWorldSizeLimit)
        return corrupt_state("world size " + std::to_string(table.world_size),
                             "1 to " + std::to_string(kWorldSizeLimit));
    if (table.job_name.empty()) return corrupt_state("an empty job name", "the job's name");
    if (table.parts[0].bytes != layout.segment_bytes)
        return corrupt_state("a segment of " + std::to_string(table.parts[0].bytes) + " bytes by its table",
                             std::to_string(layout.segment_bytes));
    std::set<std::uint64_t> offsets;
    for (std::size_t index = 0; index < table.tensors.size(); ++index) {
        const auto& tensor = table.tensors[index];
        if (tensor.group >= table.groups.size())
            return corrupt_state("tensor '" + tensor.name + "' in group " + std::to_string(tensor.group),
                                 "below " + std::to_string(table.groups.size()));
        if (index > 0 && !(table.tensors[index - 1].name < tensor.name))
            return corrupt_state("tensor '" + tensor.name + "' after '" + table.tensors[index - 1].name + "'",
                                 "ascending distinct names");
        for (const auto& array : tensor.arrays) GRADSIEVE_TRY(check_array(tensor, array, layout, offsets));
    }
    return check_overlaps(table);
}

std::uint64_t word_count(const StateTable& table) {
    return StateLayout::rank_words(table.world_size) + 2 * table.groups.size() + 6 * table.tensors.size();
}

/// Sizes that follow from the constant part's length and the table's counts alone.
StateLayout header_layout(ByteCount constant_bytes, const StateTable& table) {
    StateLayout layout;
    layout.constant_bytes = constant_bytes;
    layout.words_offset = (kStateHeadBytes + constant_bytes + 63) / 64 * 64;
    layout.placement_offset = (layout.words_offset + 8 * word_count(table) + 63) / 64 * 64;
    layout.placement_room_bytes = table.parts.size() > 1 ? table.parts[1].bytes : 0;
    const auto end = layout.placement_offset + layout.placement_room_bytes;
    layout.header_bytes = (end + kStateAlignBytes - 1) / kStateAlignBytes * kStateAlignBytes;
    return layout;
}

}  // namespace

std::uint64_t read_count(ByteReader& reader, std::uint64_t limit) {
    const auto count = reader.read_varint();
    if (count <= reader.remaining_bytes() && count <= limit) return count;
    (void)reader.read_bytes(reader.remaining_bytes() + 1);  // fails the reader
    return 0;
}

bool has_sound_size(const StateTensor& tensor, const StateArray& array) noexcept {
    const auto bytes = checked_multiply(tensor.elements, sizeof(float));
    if (!bytes || array.bytes == *bytes) return bytes.has_value();
    const bool may_differ = &array != &tensor.arrays.front() && !is_on_devices(array);
    const auto most = checked_multiply(tensor.elements, kMostBytesOfLaterArrays);
    return may_differ && most && array.bytes > 0 && array.bytes <= *most + kMostBytesBesideElements &&
           array.bytes % sizeof(float) == 0;
}

Bytes build_state_description(const StateTable& table) {
    Bytes bytes;
    ByteWriter writer(bytes);
    writer.write_text(table.job_name);
    writer.write_text(table.run_id);
    writer.write(table.owner);
    writer.write(table.world_size);
    writer.write_varint(table.spec.size());
    writer.write_bytes(table.spec);
    writer.write_varint(table.groups.size());
    for (const auto& group : table.groups) writer.write_text(group);
    writer.write_varint(table.parts.size());
    for (const auto& part : table.parts) {
        writer.write(static_cast<std::uint8_t>(part.place));
        writer.write(part.bytes);  // of one width, as everything that is known last
        writer.write_text(part.label);
    }
    writer.write_varint(table.tensors.size());
    for (const auto& tensor : table.tensors) {
        writer.write_text(tensor.name);
        writer.write_varint(tensor.group);
        writer.write_varint(tensor.elements);
        writer.write_text(tensor.codec);
        writer.write_varint(tensor.arrays.size());
        for (const auto& array : tensor.arrays) {
            writer.write_text(array.name);
            writer.write_varint(array.part);
            for (const auto offset : array.offset_bytes) writer.write(offset);
            writer.write(array.bytes);
        }
    }
    return bytes;
}

Result<StateTable> parse_state_description(ByteView bytes) {
    ByteReader reader(bytes);
    StateTable table;
    table.job_name = reader.read_text(kTextLimitBytes);
    table.run_id = reader.read_text(kTextLimitBytes);
    table.owner = reader.read<std::uint32_t>();
    table.world_size = reader.read<std::uint32_t>();
    const auto spec = reader.read_bytes(read_count(reader, bytes.size()));
    table.spec.assign(spec.begin(), spec.end());
    table.groups.resize(read_count(reader, kTensorLimit));
    for (auto& group : table.groups) group = reader.read_text(kTextLimitBytes);
    table.parts.resize(read_count(reader, kPartsLimit));
    for (auto& part : table.parts) {
        const auto place = reader.read<std::uint8_t>();
        if (place > static_cast<std::uint8_t>(StatePlace::kDevice))
            return corrupt_state("place " + std::to_string(place), "0 (host) or 1 (device)");
        part.place = static_cast<StatePlace>(place);
        part.bytes = reader.read<std::uint64_t>();
        part.label = reader.read_text(kTextLimitBytes);
    }
    const auto tensors = read_count(reader, kTensorLimit);
    for (std::uint64_t index = 0; index < tensors && reader.is_ok(); ++index)
        table.tensors.push_back(read_tensor(reader));
    if (!reader.is_done())
        return corrupt_state("a table of " + std::to_string(bytes.size()) + " bytes that ends early or late",
                             "a whole one");
    return table;
}

std::uint64_t state_checksum(ByteView bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

Status corrupt_state(const std::string& what, const std::string& allowed) {
    return {StatusCode::kCorrupt,
            "kept state: " + what + ": allowed is " + allowed + "; it is dropped, and the job begins anew"};
}

Result<StateLayout> lay_out_state(StateTable& inout_table, std::size_t devices) {
    inout_table.parts = {{.place = StatePlace::kHost, .bytes = 0, .label = {}}};
    if (std::any_of(inout_table.tensors.begin(), inout_table.tensors.end(),
                    [](const StateTensor& tensor) { return is_on_devices(tensor); }))
        inout_table.parts.push_back(
            {.place = StatePlace::kDevice, .bytes = placement_room_bytes(inout_table, devices), .label = {}});
    auto layout = header_layout(build_state_description(inout_table).size(), inout_table);
    std::optional<std::uint64_t> end = layout.header_bytes;
    for (auto& tensor : inout_table.tensors)
        for (std::size_t generation = 0; generation < 2; ++generation)
            for (auto& array : tensor.arrays) {
                if (is_on_devices(array)) continue;
                array.offset_bytes[generation] = end.value_or(0);
                const auto bytes = checked_align(array.bytes, kStateAlignBytes);
                end = end && bytes ? checked_add(*end, *bytes) : std::nullopt;
            }
    if (!end || *end > (std::uint64_t{1} << 62U))
        return Status(StatusCode::kInvalidArgument,
                      "state of job '" + inout_table.job_name +
                          "': its bytes do not fit 62 bits: allowed is what memory holds; register smaller tensors");
    layout.segment_bytes = *end;
    inout_table.parts[0].bytes = *end;
    return layout;
}

Bytes build_state_table(const StateTable& table, const StateLayout& layout, std::uint64_t inode) {
    const auto constant = build_state_description(table);
    Bytes bytes;
    ByteWriter writer(bytes);
    writer.write(kStateMagic);
    writer.write(kStateVersion);
    writer.write(kStateAbi);
    writer.write(inode);
    writer.write(std::uint64_t{constant.size()});
    writer.write(layout.words_offset);
    writer.write(layout.segment_bytes);
    writer.write(checksum_of(bytes, constant));
    writer.write(std::uint64_t{0});  // the ready mark: stored last, by the owner of the memory
    writer.write_bytes(constant);
    return bytes;
}

Result<ParsedState> parse_state_table(ByteView segment, std::uint64_t inode) {
    if (segment.size() < kStateHeadBytes)
        return corrupt_state(std::to_string(segment.size()) + " bytes", "at least a head of 64");
    ByteReader reader(segment.first(kStateHeadBytes));
    const auto magic = reader.read<std::uint64_t>();
    const auto version = reader.read<std::uint32_t>();
    const auto abi = reader.read<std::uint32_t>();
    const auto seen_inode = reader.read<std::uint64_t>();
    const auto constant_bytes = reader.read<std::uint64_t>();
    const auto words_offset = reader.read<std::uint64_t>();
    const auto segment_bytes = reader.read<std::uint64_t>();
    const auto checksum = reader.read<std::uint64_t>();
    const auto ready = reader.read<std::uint64_t>();
    if (magic != kStateMagic) return corrupt_state("magic " + std::to_string(magic), "a state segment's");
    if (version != kStateVersion || abi != kStateAbi)
        return Status(StatusCode::kVersionMismatch,
                      "kept state: format " + std::to_string(version) + "." + std::to_string(abi) +
                          ": this daemon reads " + std::to_string(kStateVersion) + "." + std::to_string(kStateAbi) +
                          "; it is dropped, and the job begins anew");
    if (ready != kStateReady) return corrupt_state("no ready mark", "a segment that was finished");
    if (seen_inode != inode)
        return corrupt_state("inode " + std::to_string(seen_inode) + " in the head",
                             std::to_string(inode) + ", the descriptor's own");
    if (segment_bytes != segment.size() || constant_bytes > segment.size() - kStateHeadBytes)
        return corrupt_state(std::to_string(segment.size()) + " bytes, of which the head claims " +
                                 std::to_string(segment_bytes) + " with a table of " + std::to_string(constant_bytes),
                             "the sizes it was made with");
    const auto constant = segment.subspan(kStateHeadBytes, constant_bytes);
    if (checksum_of(segment, constant) != checksum)
        return corrupt_state("a table whose checksum differs", "the bytes it was made with");
    GRADSIEVE_ASSIGN(auto table, parse_state_description(constant));
    GRADSIEVE_TRY(check_parts(table));
    auto layout = header_layout(constant_bytes, table);
    layout.segment_bytes = segment_bytes;
    if (layout.words_offset != words_offset || layout.header_bytes > segment_bytes)
        return corrupt_state("words at byte " + std::to_string(words_offset) + " of " + std::to_string(segment_bytes),
                             std::to_string(layout.words_offset));
    GRADSIEVE_TRY(check_table(table, layout));
    return ParsedState{std::move(table), layout};
}

}  // namespace gradsieve::shm

// Builds and parses placements. No length is believed before it was compared with what is left, and no offset before
// it was compared with its part. Any thread; owns nothing.
#include "shm/state_placement.hpp"

#include <algorithm>

namespace gradsieve::shm {
namespace {

/// "GSVPART" and a zero, little-endian.
constexpr std::uint64_t kPartMagic = 0x0054524150565347ULL;
constexpr std::size_t kUuidLimitBytes = 64;
constexpr ByteCount kPartLimitBytes = ByteCount{1} << 50U;
constexpr ByteCount kVarintBytes = 10;

StatePiece read_piece(ByteReader& reader, const StateTensor& tensor) {
    StatePiece piece;
    piece.part = static_cast<std::uint32_t>(std::min<std::uint64_t>(reader.read_varint(), kDevicePartsLimit));
    piece.first = reader.read_varint();
    piece.elements = reader.read_varint();
    piece.offset_bytes.resize(tensor.arrays.size());
    for (auto& offsets : piece.offset_bytes)
        for (auto& offset : offsets) offset = reader.read<std::uint64_t>();
    return piece;
}

/// What may stand in the name of a parked descriptor.
bool is_uuid(const std::string& text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char letter) {
        return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
               (letter >= 'A' && letter <= 'Z') || letter == '-';
    });
}

Status check_parts(const std::vector<DevicePart>& parts) {
    if (parts.empty()) return corrupt_state("a placement without GPUs", "1 to 64");
    for (std::size_t place = 0; place < parts.size(); ++place) {
        const auto& part = parts[place];
        const auto is_same = [&](const DevicePart& other) { return other.gpu == part.gpu; };
        if (!is_uuid(part.gpu) || std::count_if(parts.begin(), parts.end(), is_same) != 1)
            return corrupt_state("part " + std::to_string(place + 1) + " on GPU '" + part.gpu + "'",
                                 "each GPU once, by its UUID");
        if (part.bytes == 0 || part.bytes % kDevicePageBytes != 0 || part.bytes > kPartLimitBytes)
            return corrupt_state(std::to_string(part.bytes) + " bytes on GPU " + part.gpu,
                                 "whole pages of " + std::to_string(kDevicePageBytes));
    }
    return {};
}

/// `inout_taken`: what lies in each part so far.
using Taken = std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>>;
Status check_piece(const StateTensor& tensor, const StatePiece& piece, const StatePlacement& placement,
                   Taken& inout_taken) {
    const auto subject = "tensor '" + tensor.name + "' from element " + std::to_string(piece.first);
    if (piece.part >= placement.parts.size())
        return corrupt_state(subject + " in part " + std::to_string(piece.part),
                             "below " + std::to_string(placement.parts.size()));
    const auto& part = placement.parts[piece.part];
    for (std::size_t array = 0; array < piece.offset_bytes.size(); ++array)
        for (const auto offset : piece.offset_bytes[array]) {
            if (!is_on_devices(tensor.arrays[array])) {
                if (offset == 0) continue;
                return corrupt_state("array '" + tensor.arrays[array].name + "' of " + subject + " at byte " +
                                         std::to_string(offset) + " on GPU " + part.gpu,
                                     "0, since it lies on the host");
            }
            const auto bytes = checked_multiply(piece.elements, sizeof(float));
            const auto end = bytes ? checked_add(offset, *bytes) : std::nullopt;
            if (offset % kDeviceAlignBytes != 0 || offset < kDeviceAlignBytes || !end || *end > part.bytes)
                return corrupt_state(subject + " at byte " + std::to_string(offset) + " on GPU " + part.gpu,
                                     "multiples of 256 within its " + std::to_string(part.bytes) + " bytes");
            if (piece.elements > 0) inout_taken[piece.part].emplace_back(offset, *end);
        }
    return {};
}

Status check_tensor(const StateTensor& tensor, const std::vector<StatePiece>& pieces, const StatePlacement& placement,
                    Taken& inout_taken) {
    ElementCount next = 0;
    for (const auto& piece : pieces) {
        if (piece.first != next || piece.elements > tensor.elements - next)
            return corrupt_state("tensor '" + tensor.name + "' with elements from " + std::to_string(piece.first) +
                                     " after " + std::to_string(next),
                                 "ranges that follow one another");
        next += piece.elements;
        GRADSIEVE_TRY(check_piece(tensor, piece, placement, inout_taken));
    }
    if (next == tensor.elements) return {};
    return corrupt_state("tensor '" + tensor.name + "' with " + std::to_string(next) + " elements on GPUs",
                         "all of its " + std::to_string(tensor.elements));
}

Status check_overlaps(Taken& inout_taken) {
    for (auto& ranges : inout_taken) {
        std::sort(ranges.begin(), ranges.end());
        for (std::size_t index = 1; index < ranges.size(); ++index)
            if (ranges[index].first < ranges[index - 1].second)
                return corrupt_state("arrays on a GPU at bytes " + std::to_string(ranges[index - 1].first) + " and " +
                                         std::to_string(ranges[index].first) + " that reach into one another",
                                     "a place of its own for each");
    }
    return {};
}

}  // namespace

bool StatePlacement::is_laid_out_like(const StatePlacement& other) const {
    const auto is_same = [](const DevicePart& one, const DevicePart& two) {
        return one.gpu == two.gpu && one.bytes == two.bytes;
    };
    return std::equal(parts.begin(), parts.end(), other.parts.begin(), other.parts.end(), is_same) &&
           tensors == other.tensors;
}

DevicePartMark device_part_mark(const StatePlacement& placement, std::size_t place) {
    const auto& part = placement.parts[place];
    return {kPartMagic, part.key, part.bytes, std::uint64_t{place}};
}

Status check_device_part(const StatePlacement& placement, std::size_t place, const DevicePartMark& seen) {
    if (seen == device_part_mark(placement, place)) return {};
    return corrupt_state("memory on GPU " + placement.parts[place].gpu + " that begins with other words",
                         "the part that was made with the table");
}

ByteCount placement_room_bytes(const StateTable& table, std::size_t devices) {
    ByteCount bytes = kPlacementHeadBytes + kVarintBytes + devices * (1 + kUuidLimitBytes + 16);
    for (const auto& tensor : table.tensors)
        if (is_on_devices(tensor))
            bytes += kVarintBytes + devices * (3 * kVarintBytes + tensor.arrays.size() * 2 * sizeof(std::uint64_t));
    return (bytes + 63) / 64 * 64;
}

Bytes build_placement(const StatePlacement& placement) {
    Bytes text;
    ByteWriter writer(text);
    writer.write_varint(placement.parts.size());
    for (const auto& part : placement.parts) {
        writer.write_text(part.gpu);
        writer.write(part.bytes);
        writer.write(part.key);
    }
    for (const auto& pieces : placement.tensors) {
        if (pieces.empty()) continue;
        writer.write_varint(pieces.size());
        for (const auto& piece : pieces) {
            writer.write_varint(piece.part);
            writer.write_varint(piece.first);
            writer.write_varint(piece.elements);
            for (const auto& offsets : piece.offset_bytes)
                for (const auto offset : offsets) writer.write(offset);
        }
    }
    return text;
}

Result<StatePlacement> parse_placement(ByteView text, const StateTable& table) {
    ByteReader reader(text);
    StatePlacement placement;
    placement.parts.resize(read_count(reader, kDevicePartsLimit));
    for (auto& part : placement.parts) {
        part.gpu = reader.read_text(kUuidLimitBytes);
        part.bytes = reader.read<std::uint64_t>();
        part.key = reader.read<std::uint64_t>();
    }
    placement.tensors.resize(table.tensors.size());
    for (std::size_t number = 0; number < table.tensors.size() && reader.is_ok(); ++number) {
        if (!is_on_devices(table.tensors[number])) continue;
        const auto count = read_count(reader, kDevicePartsLimit);
        for (std::uint64_t index = 0; index < count && reader.is_ok(); ++index)
            placement.tensors[number].push_back(read_piece(reader, table.tensors[number]));
    }
    if (!reader.is_done())
        return corrupt_state("a placement of " + std::to_string(text.size()) + " bytes that ends early or late",
                             "a whole one");
    GRADSIEVE_TRY(check_parts(placement.parts));
    Taken taken(placement.parts.size());
    for (std::size_t number = 0; number < table.tensors.size(); ++number)
        if (is_on_devices(table.tensors[number]))
            GRADSIEVE_TRY(check_tensor(table.tensors[number], placement.tensors[number], placement, taken));
    GRADSIEVE_TRY(check_overlaps(taken));
    return placement;
}

}  // namespace gradsieve::shm

#include "daemon/gpu_state.hpp"

#include "codec/cuda/device_values.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace gradsieve::daemon {

namespace {

using codec::cuda::ElementType;
using codec::cuda::ShareableMemory;
using codec::cuda::Stream;

/// Values that go from GPU to GPU do so over the host, in pieces of so many: 16 MiB.
constexpr ElementCount kMoveElements = ElementCount{4} << 20U;

/// A mark goes to and from the device as floats do, whose bits nobody looks at.
using MarkValues = std::array<float, sizeof(shm::DevicePartMark) / sizeof(float)>;

Status write_mark(const Stream& stream, const ShareableMemory& memory, const shm::DevicePartMark& mark) {
    MarkValues values;
    std::memcpy(values.data(), mark.data(), sizeof(mark));
    return codec::cuda::write_values(stream, values, memory.data(), ElementType::kF32);
}

Result<shm::DevicePartMark> read_mark(const Stream& stream, const ShareableMemory& memory) {
    MarkValues values{};
    GRADSIEVE_TRY(codec::cuda::read_values(stream, memory.data(), ElementType::kF32, values));
    shm::DevicePartMark mark{};
    std::memcpy(mark.data(), values.data(), sizeof(mark));
    return mark;
}

float* address_of(const PartMemory& memory, const StateRange& range) {
    return memory[range.part].as<float>(range.offset_bytes);
}

/// One for each part.
Result<std::vector<Stream>> streams_of(std::span<const int> ordinals) {
    std::vector<Stream> streams;
    for (const int ordinal : ordinals) {
        GRADSIEVE_ASSIGN(auto stream, Stream::make(ordinal));
        streams.push_back(std::move(stream));
    }
    return streams;
}

Status make_parts(GpuStateSetup& inout_setup, std::span<const Stream> streams) {
    for (std::size_t place = 0; place < inout_setup.placement.parts.size(); ++place) {
        UniqueFd descriptor;
        GRADSIEVE_ASSIGN(auto memory,
                         ShareableMemory::make(inout_setup.ordinals[place], inout_setup.placement.parts[place].bytes,
                                               "the job's residual and variance", descriptor));
        GRADSIEVE_TRY(codec::cuda::fill_bytes(streams[place], memory.data(), memory.size(), 0));
        GRADSIEVE_TRY(streams[place].synchronize());
        GRADSIEVE_TRY(write_mark(streams[place], memory, device_part_mark(inout_setup.placement, place)));
        inout_setup.descriptors.push_back(std::move(descriptor));
        inout_setup.memory.push_back(std::move(memory));
    }
    return {};
}

Status move_values(const GpuStateSetup::Source& source, std::span<const GpuStateSetup::Move> moves,
                   const PartMemory& to, std::span<const Stream> to_streams) {
    GRADSIEVE_ASSIGN(const auto from, open_parts(source.placement, source.ordinals, source.descriptors));
    GRADSIEVE_ASSIGN(const auto from_streams, streams_of(source.ordinals));
    std::vector<float> values;
    for (const auto& move : moves)
        for (ElementCount done = 0; done < move.from.elements; done += values.size()) {
            values.resize(std::min(kMoveElements, move.from.elements - done));
            GRADSIEVE_TRY(codec::cuda::read_values(from_streams[move.from.part], address_of(from, move.from) + done,
                                                   ElementType::kF32, values));
            GRADSIEVE_TRY(codec::cuda::write_values(to_streams[move.to.part], values, address_of(to, move.to) + done,
                                                    ElementType::kF32));
        }
    return {};
}

Status fill(GpuStateSetup& inout_setup) {
    GRADSIEVE_ASSIGN(const auto streams, streams_of(inout_setup.ordinals));
    if (inout_setup.is_new) {
        GRADSIEVE_TRY(make_parts(inout_setup, streams));
    } else {
        GRADSIEVE_ASSIGN(inout_setup.memory,
                         open_parts(inout_setup.placement, inout_setup.ordinals, inout_setup.descriptors));
    }
    if (inout_setup.source)
        GRADSIEVE_TRY(move_values(*inout_setup.source, inout_setup.moves, inout_setup.memory, streams));
    for (const auto& range : inout_setup.zeros)
        GRADSIEVE_TRY(codec::cuda::fill_bytes(streams[range.part], address_of(inout_setup.memory, range),
                                              range.elements * sizeof(float), 0));
    for (const auto& one : inout_setup.fills)
        GRADSIEVE_TRY(codec::cuda::write_values(streams[one.range.part], one.values,
                                                address_of(inout_setup.memory, one.range), ElementType::kF32));
    for (const auto& stream : streams) GRADSIEVE_TRY(stream.synchronize());
    return {};
}

}  // namespace

Result<PartMemory> open_parts(const shm::StatePlacement& placement, std::span<const int> ordinals,
                              std::span<const UniqueFd> descriptors) {
    PartMemory memory;
    for (std::size_t place = 0; place < placement.parts.size(); ++place) {
        const auto opened = [&]() -> Status {
            GRADSIEVE_ASSIGN(auto part, ShareableMemory::open(ordinals[place], descriptors[place].get(),
                                                              placement.parts[place].bytes));
            GRADSIEVE_ASSIGN(const auto stream, Stream::make(ordinals[place]));
            GRADSIEVE_ASSIGN(const auto mark, read_mark(stream, part));
            memory.push_back(std::move(part));
            return check_device_part(placement, place, mark);
        }();
        if (!opened.is_ok()) return opened.with_context("kept state on GPU " + placement.parts[place].gpu);
    }
    return memory;
}

Status read_range(const PartMemory& memory, const StateRange& range, std::span<float> ret_values) {
    GRADSIEVE_ASSIGN(const auto stream, Stream::make(memory[range.part].device()));
    return codec::cuda::read_values(stream, address_of(memory, range), ElementType::kF32, ret_values);
}

Status set_up_state(GpuStateSetup& inout_setup) {
    const auto status = fill(inout_setup);
    if (status.is_ok()) return {};
    inout_setup.memory.clear();
    if (inout_setup.is_new) inout_setup.descriptors.clear();
    return status;
}

}  // namespace gradsieve::daemon

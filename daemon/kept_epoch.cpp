#include "daemon/kept_epoch.hpp"

#include "codec/state_arrays.hpp"

#include <cstring>

namespace gradsieve::daemon {
namespace {

/// In four bytes, of a tensor of one element; never 0.
std::uint32_t folded(Epoch epoch) { return static_cast<std::uint32_t>(epoch ^ (epoch >> 32U)) | 1U; }

void write_epoch(Epoch epoch, std::span<float> array) {
    const std::uint32_t half = folded(epoch);
    if (array.size() == 1) std::memcpy(array.data(), &half, sizeof(half));
    if (array.size() == 2) std::memcpy(array.data(), &epoch, sizeof(epoch));
}

}  // namespace

std::optional<EpochPlace> find_epoch(const shm::StateTable& table, std::uint32_t group) {
    std::optional<EpochPlace> place;
    for (std::size_t tensor = 0; tensor < table.tensors.size(); ++tensor) {
        if (table.tensors[tensor].group != group) continue;
        const auto& arrays = table.tensors[tensor].arrays;
        for (std::size_t array = 0; array < arrays.size(); ++array)
            if (arrays[array].name == codec::kEpochName && arrays[array].bytes > (place ? place->bytes : 0))
                place = EpochPlace{tensor, array, arrays[array].bytes};
    }
    return place;
}

KeptEpoch parse_epoch(std::span<const std::byte> bytes) noexcept {
    Epoch epoch = 0;
    if (bytes.size() > sizeof(epoch)) return std::nullopt;
    std::memcpy(&epoch, bytes.data(), bytes.size());
    return epoch == 0 ? KeptEpoch() : KeptEpoch(epoch);
}

KeptEpoch kept_epoch(shm::StateSegment& state, std::uint32_t group, Step step) {
    const auto place = find_epoch(state.table(), group);
    if (!place) return Epoch{0};
    const auto live = state.live_generation(place->tensor, step);
    if (!live) return std::nullopt;
    const auto* values = state.values(state.table().tensors[place->tensor].arrays[place->array], *live);
    return parse_epoch(std::as_bytes(std::span(values, place->bytes / sizeof(float))));
}

void prepare_averages(const HostedTensor& tensor, Step committed, CodecTask& inout_task) {
    const auto live = tensor.live_generation(committed);
    const auto& in = tensor.generations[live];
    const auto& out = tensor.generations[1 - live];
    inout_task.request.in = in.arrays;
    inout_task.request.out = out.arrays;
    inout_task.out_generation = 1 - live;
    inout_task.scale = in.scale;
    inout_task.keeps_state = !out.is_valid || out.stamp != inout_task.step;
    const auto elements = size_of(*codec::find_state_array(codec::kEpochName), tensor.pipeline, tensor.elements);
    write_epoch(tensor.epoch, {out.arrays.epoch, elements});
}

}  // namespace gradsieve::daemon

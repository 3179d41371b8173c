#include "daemon/kept_epoch.hpp"

#include <cstring>

namespace gradsieve::daemon {

std::optional<EpochPlace> find_epoch(const shm::StateTable& table, std::uint32_t group) {
    std::optional<EpochPlace> place;
    for (std::size_t tensor = 0; tensor < table.tensors.size(); ++tensor) {
        if (table.tensors[tensor].group != group) continue;
        const auto& arrays = table.tensors[tensor].arrays;
        for (std::size_t array = 0; array < arrays.size(); ++array)
            if (arrays[array].name == kEpochArray && arrays[array].bytes <= sizeof(Epoch) &&
                arrays[array].bytes > (place ? place->bytes : 0))
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

}  // namespace gradsieve::daemon

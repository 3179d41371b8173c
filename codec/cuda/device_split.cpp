#include "codec/cuda/device_split.hpp"

#include <algorithm>
#include <numeric>

namespace gradsieve::codec::cuda {

std::vector<std::vector<DeviceRange>> split_over_devices(std::span<const ElementCount> elements, std::size_t devices) {
    std::vector<std::vector<DeviceRange>> ranges(elements.size(), std::vector<DeviceRange>(devices));
    std::vector<ElementCount> loads(devices, 0);
    std::vector<std::size_t> by_load(devices);
    std::vector<std::size_t> by_size(elements.size());
    std::iota(by_size.begin(), by_size.end(), std::size_t{0});
    std::ranges::stable_sort(by_size, [&](auto left, auto right) { return elements[left] > elements[right]; });
    for (const auto tensor : by_size) {
        const ElementCount chunks = (elements[tensor] + kChunkElements - 1) / kChunkElements;
        std::vector<ElementCount> shares(devices, chunks / devices);
        std::iota(by_load.begin(), by_load.end(), std::size_t{0});
        std::ranges::stable_sort(by_load, [&](auto left, auto right) { return loads[left] < loads[right]; });
        for (std::size_t extra = 0; extra < chunks % devices; ++extra) ++shares[by_load[extra]];
        ElementCount first = 0;
        for (std::size_t device = 0; device < devices; ++device) {
            const ElementCount end = std::min(elements[tensor], first + shares[device] * kChunkElements);
            ranges[tensor][device] = {first, end - first};
            loads[device] += end - first;
            first = end;
        }
    }
    return ranges;
}

}  // namespace gradsieve::codec::cuda

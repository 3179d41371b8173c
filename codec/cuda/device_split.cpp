#include "codec/cuda/device_split.hpp"

#include <algorithm>
#include <numeric>

namespace gradsieve::codec::cuda {
namespace {

/// Ends of the devices' ranges, so that what each has afterwards is as even as whole chunks allow.
std::vector<ElementCount> ends_of(ElementCount elements, bool is_whole, const std::vector<ElementCount>& loads) {
    std::vector<ElementCount> ends(loads.size(), elements);
    if (is_whole || elements <= kChunkElements) {  // to one of those that have least, the first
        const auto least = std::ranges::min_element(loads);
        std::fill(ends.begin(), ends.begin() + std::distance(loads.begin(), least), ElementCount{0});
        return ends;
    }
    const ElementCount even = (std::accumulate(loads.begin(), loads.end(), elements) + loads.size() - 1) / loads.size();
    ElementCount wanted = 0;
    for (std::size_t device = 0; device + 1 < loads.size(); ++device) {
        wanted += even - std::min(even, loads[device]);
        ends[device] = std::min(elements, (wanted + kChunkElements / 2) / kChunkElements * kChunkElements);
    }
    return ends;
}

}  // namespace

std::vector<std::vector<DeviceRange>> split_over_devices(std::span<const ElementCount> elements, std::size_t devices,
                                                         const std::vector<bool>& is_whole) {
    std::vector<std::vector<DeviceRange>> ranges(elements.size(), std::vector<DeviceRange>(devices));
    std::vector<ElementCount> loads(devices, 0);
    std::vector<std::size_t> by_size(elements.size());
    std::iota(by_size.begin(), by_size.end(), std::size_t{0});
    std::ranges::stable_sort(by_size, [&](auto left, auto right) { return elements[left] > elements[right]; });
    for (const auto tensor : by_size) {
        const auto ends = ends_of(elements[tensor], !is_whole.empty() && is_whole[tensor], loads);
        ElementCount first = 0;
        for (std::size_t device = 0; device < devices; ++device) {
            ranges[tensor][device] = {first, ends[device] - first};
            loads[device] += ends[device] - first;
            first = ends[device];
        }
    }
    return ranges;
}

}  // namespace gradsieve::codec::cuda

#include "codec/cuda/decode_request_check.hpp"

#include <algorithm>
#include <limits>
#include <string>

namespace gradsieve::codec::cuda {
namespace {

constexpr std::size_t kMaximumContributions = std::numeric_limits<std::uint16_t>::max();

bool are_whole(const GpuDecodeRequest& request, std::size_t devices) {
    ElementCount next = 0;
    for (const DeviceRange& range : request.ranges) {
        if (range.first != next || (range.first % kChunkElements != 0 && range.elements > 0)) return false;
        next = range.end();
    }
    return next == request.elements && request.ranges.size() == devices;
}

bool is_usable(const GpuDecodeBase& base, ElementCount elements) {
    const auto is_number = [](const float* array) {
        return array != nullptr && reinterpret_cast<std::uintptr_t>(array) % sizeof(float) == 0;
    };
    return elements == 0 || (is_number(base.in) && is_number(base.out));
}

}  // namespace

Status check_decode_request(const GpuDecodeRequest& request, std::size_t place, std::size_t devices) {
    const auto refuse = [&](const std::string& what) {
        return Status(StatusCode::kInvalidArgument, "GPU decoder: request " + std::to_string(place) + ": " + what);
    };
    if (request.contributions.size() > kMaximumContributions)
        return refuse("contributions " + std::to_string(request.contributions.size()) + ": allowed are up to " +
                      std::to_string(kMaximumContributions) + "; average fewer nodes");
    for (const Contribution& contribution : request.contributions)
        if (!(contribution.factor >= 0 && contribution.factor <= 1))
            return refuse("factor " + std::to_string(contribution.factor) +
                          ": allowed is 0 to 1; hand over a node's share of the ranks");
    if (!request.ranges.empty() && !are_whole(request, devices))
        return refuse("ranges " + std::to_string(request.ranges.size()) + " for " + std::to_string(devices) +
                      " devices: allowed is one each, ascending from chunk to chunk, together the whole tensor; cut it "
                      "with split_over_devices");
    if (!request.bases.empty() && request.bases.size() != std::max<std::size_t>(1, request.ranges.size()))
        return refuse("bases " + std::to_string(request.bases.size()) + " for " +
                      std::to_string(request.ranges.size()) +
                      " ranges: allowed is one each, or one without ranges; hand over what each device adds to");
    for (std::size_t device = 0; device < request.bases.size(); ++device)
        if (!is_usable(request.bases[device],
                       request.ranges.empty() ? request.elements : request.ranges[device].elements))
            return refuse(
                "a base without memory, or at a byte that is no multiple of 4: allowed are two arrays of "
                "fp32 numbers; hand over both");
    for (const GpuResult& result : request.results) {
        if (request.elements > 0 && result.data == nullptr)
            return refuse("a result without memory: allowed is device memory of all elements; hand it over");
        if (reinterpret_cast<std::uintptr_t>(result.data) % element_bytes(result.type) != 0)
            return refuse("a result at a byte that is no multiple of " + std::to_string(element_bytes(result.type)) +
                          ": allowed are whole elements; align it");
    }
    return {};
}

}  // namespace gradsieve::codec::cuda

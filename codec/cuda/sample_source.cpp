#include "codec/cuda/sample_source.hpp"

namespace gradsieve::codec::cuda {
namespace {

/// `own`: the same arrays as the device finds them, or empty.
struct Arrays {
    std::span<const float*const> all, own;
    std::span<const int> devices;
};

StagedSamples::Source source_of(const Arrays& arrays, std::size_t number, ElementType type, ElementCount first,
                                const DevicePlace& place) {
    StagedSamples::Source source;
    source.element_bytes = element_bytes(type);
    source.device = arrays.devices.empty() ? -1 : arrays.devices[number];
    source.is_staged = !place.reaches(source.device) || (!arrays.own.empty() && arrays.own[number] == nullptr);
    const float* array = source.is_staged || arrays.own.empty() ? arrays.all[number] : arrays.own[number];
    source.data = reinterpret_cast<const std::byte*>(array) + first * source.element_bytes;
    source.type = static_cast<std::uint32_t>(type);
    return source;
}

}  // namespace

GpuEncodePart part_of(const GpuEncodeRequest& gpu_request, const DevicePlace& place) {
    const EncodeRequest& request = gpu_request.request;
    if (!gpu_request.parts.empty()) return gpu_request.parts[place.place];
    if (place.place > 0) return {};
    return {{0, request.elements}, request.in, request.out};
}

StagedSamples::Source sample_source(const GpuEncodeRequest& gpu_request, const GpuEncodePart& part,
                                    const DevicePlace& place, std::size_t sample) {
    const auto type = gpu_request.sample_types.empty() ? ElementType::kF32 : gpu_request.sample_types[sample];
    return source_of({gpu_request.request.samples, part.samples, gpu_request.sample_devices}, sample, type,
                     part.range.first, place);
}

StagedSamples::Source moment_source(const GpuEncodeRequest& gpu_request, const GpuEncodePart& part,
                                    const DevicePlace& place, std::size_t rank) {
    return source_of({gpu_request.request.second_moments, part.second_moments, gpu_request.moment_devices}, rank,
                     ElementType::kF32, part.range.first, place);
}

}  // namespace gradsieve::codec::cuda

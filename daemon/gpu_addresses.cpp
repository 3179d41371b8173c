#include "daemon/gpu_addresses.hpp"

namespace gradsieve::daemon {

EncodeAddresses encode_addresses(const CodecTask& task, std::span<const int> ordinals) {
    EncodeAddresses addresses;
    addresses.parts = task.gpu_parts;
    if (ordinals.size() == 1) return addresses;
    addresses.samples.resize(task.gpu_parts.size());
    addresses.second_moments.resize(task.gpu_parts.size());
    for (std::size_t place = 0; place < task.gpu_parts.size(); ++place) {
        const int ordinal = ordinals[place];
        for (std::size_t rank = 0; rank < task.gpu_buffers.size(); ++rank) {
            const auto& buffer = *task.gpu_buffers[rank];
            for (std::uint32_t sample = 0; sample < task.gpu_sample_counts[rank]; ++sample)
                addresses.samples[place].push_back(static_cast<const float*>(buffer.slice_on(ordinal, sample)));
            if (!task.request.second_moments.empty())
                addresses.second_moments[place].push_back(
                    reinterpret_cast<const float*>(buffer.second_moment->data_on(ordinal)));
        }
        addresses.parts[place].samples = addresses.samples[place];
        addresses.parts[place].second_moments = addresses.second_moments[place];
    }
    return addresses;
}

std::vector<std::vector<void*>> result_addresses(const CodecTask& task, std::span<const int> ordinals) {
    std::vector<std::vector<void*>> addresses(task.gpu_buffers.size());
    if (ordinals.size() == 1) return addresses;
    for (std::size_t rank = 0; rank < task.gpu_buffers.size(); ++rank)
        for (const int ordinal : ordinals) addresses[rank].push_back(task.gpu_buffers[rank]->slice_on(ordinal, 0));
    return addresses;
}

std::vector<codec::cuda::GpuDecodeBase> decode_bases(const CodecTask& task) {
    std::vector<codec::cuda::GpuDecodeBase> bases;
    if (!codec::has_delta(task.tensor->pipeline)) return bases;
    for (const auto& part : task.gpu_parts) bases.push_back({part.in.average, part.out.average});
    if (bases.empty()) bases.push_back({task.request.in.average, task.request.out.average});
    return bases;
}

}  // namespace gradsieve::daemon

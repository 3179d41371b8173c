#include "daemon/gpu_encode_turn.hpp"

#include "codec/cuda/gpu_phases.hpp"

namespace gradsieve::daemon {

void EncodeTurn::ask(std::span<GpuTask*> batch, std::span<const int> ordinals) {
    const auto count = batch.size();
    tasks = batch;
    requests.assign(count, {});
    types.assign(count, {});
    sample_devices.assign(count, {});
    moment_devices.assign(count, {});
    addresses.assign(count, {});
    passes.assign(count, {});
    results.clear();
    results.resize(count);
    for (std::size_t number = 0; number < count; ++number) {
        const auto& task = *tasks[number]->codec;
        for (std::size_t rank = 0; rank < task.gpu_buffers.size(); ++rank) {
            const auto& buffer = *task.gpu_buffers[rank];
            types[number].insert(types[number].end(), task.gpu_sample_counts[rank], buffer.type);
            sample_devices[number].insert(sample_devices[number].end(), task.gpu_sample_counts[rank], buffer.device);
            if (!task.request.second_moments.empty()) moment_devices[number].push_back(buffer.device);
        }
        requests[number].request = task.request;
        if (task.tensor->phases) {
            passes[number] = codec::cuda::first_pass(task.tensor->pipeline, task.step);
            requests[number].request.pipeline = &passes[number];
        }
        requests[number].sample_types = types[number];
        addresses[number] = encode_addresses(task, ordinals);
        requests[number].parts = addresses[number].parts;
        requests[number].sample_devices = sample_devices[number];
        requests[number].moment_devices = moment_devices[number];
        requests[number].wants_signature = task.tensor->pipeline.measures_similarity;
    }
}

std::size_t batch_length(std::span<GpuTask* const> tasks, ElementCount elements) {
    ElementCount sum = 0;
    std::size_t count = 0;
    for (const auto* task : tasks) {
        sum += task->codec->tensor->elements;
        if (count > 0 && sum > elements) break;
        ++count;
    }
    return count;
}

}  // namespace gradsieve::daemon

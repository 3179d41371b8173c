// What a worker codes of tensors whose steps have two phases: one of its GPUs has the whole tensor, and each writes the
// averages of the ranks whose memory is its own.
#include "codec/cuda/gpu_phases.hpp"
#include "daemon/gpu_context.hpp"
#include "daemon/gpu_worker.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::daemon {

namespace {

/// Place of the GPU that has the tensor.
std::size_t place_of_tensor(const CodecTask& task) {
    const auto whole = std::ranges::find_if(task.gpu_parts, [](const auto& part) { return part.range.elements > 0; });
    return whole == task.gpu_parts.end() ? 0 : static_cast<std::size_t>(std::distance(task.gpu_parts.begin(), whole));
}

/// The state is that GPU's, but for the factor, which is the host's.
codec::cuda::GpuPhaseRequest phase_request(const CodecTask& task) {
    codec::cuda::GpuPhaseRequest made{task.request, &*task.tensor->phases};
    if (task.gpu_parts.empty()) return made;
    const auto& part = task.gpu_parts[place_of_tensor(task)];
    auto& request = made.request;
    request.in = part.in;
    request.in.factor = task.request.in.factor;
    request.out = part.out;
    request.out.factor = task.request.out.factor;
    return made;
}

}  // namespace

Status GpuWorker::finish_first_phases(std::span<GpuTask* const> tasks, const codec::cuda::GpuEncoder& encoder,
                                      std::span<codec::EncodeResult> inout_results) {
    for (std::size_t place = 0; place < devices_.size(); ++place) {
        std::vector<codec::cuda::GpuPhaseRequest> requests;
        std::vector<std::size_t> numbers;
        for (std::size_t number = 0; number < tasks.size(); ++number) {
            const auto& task = *tasks[number]->codec;
            if (!task.tensor->phases || place_of_tensor(task) != place) continue;
            requests.push_back(phase_request(task));
            numbers.push_back(number);
        }
        if (requests.empty()) continue;
        std::vector<codec::EncodeResult> results;
        for (const auto number : numbers) results.push_back(std::move(inout_results[number]));
        GRADSIEVE_TRY(
            codec::cuda::finish_first_phases(encoder.stream(place), requests, context_->phase_codecs[place], results));
        for (std::size_t index = 0; index < numbers.size(); ++index)
            inout_results[numbers[index]] = std::move(results[index]);
    }
    return {};
}

void GpuWorker::encode_second_phases(std::span<GpuTask* const> tasks) {
    const SteadyClock clock;
    const auto begin = clock.now();
    Status status = ensure_context();
    for (std::size_t place = 0; place < devices_.size() && status.is_ok(); ++place) {
        std::vector<codec::cuda::GpuPhaseRequest> requests;
        std::vector<CodecTask*> own;
        for (auto* task : tasks) {
            if (place_of_tensor(*task->codec) != place) continue;
            requests.push_back(phase_request(*task->codec));
            own.push_back(task->codec.get());
        }
        std::vector<codec::EncodeResult> results(requests.size());
        if (!own.empty())
            status = codec::cuda::encode_second_phases(stream_of(ordinals_[place]), requests,
                                                       context_->phase_codecs[place], results);
        for (std::size_t number = 0; number < own.size() && status.is_ok(); ++number) {
            status = take_norm(*own[number]);
            own[number]->encoded.emplace(std::move(results[number]));
        }
    }
    look_after(status);
    const auto ended = clock.now();
    for (auto* task : tasks) {
        task->codec->took = (ended - begin) / static_cast<int>(tasks.size());
        task->codec->began = begin;
        task->codec->ended = ended;
        if (!status.is_ok()) task->codec->encoded.emplace(status.with_context("GPU " + names()));
    }
    hand_back(tasks);
}

void GpuWorker::decode_last_phases(std::span<CodecTask* const> tasks) {
    const SteadyClock clock;
    const auto begin = clock.now();
    std::vector<std::vector<std::vector<codec::ChunkView>>> views(tasks.size());
    std::vector<std::vector<codec::Contribution>> contributions(tasks.size());
    std::vector<codec::cuda::GpuPhaseDecode> requests;
    for (std::size_t number = 0; number < tasks.size(); ++number) {
        const auto& task = *tasks[number];
        views[number].resize(task.payloads.size());
        for (std::size_t node = 0; node < task.payloads.size(); ++node) {
            for (const auto& [chunk, view] : task.payloads[node].chunks)
                views[number][node].push_back({chunk, view.bytes()});
            contributions[number].push_back({task.factors[node], views[number][node]});
        }
        requests.push_back({&*task.tensor->phases, task.tensor->id, task.step, contributions[number], {}});
        for (const auto* buffer : task.gpu_buffers)
            requests.back().results.push_back({buffer->slice(0), buffer->type, false, buffer->device, {}});
    }
    Status status = ensure_context();
    std::vector<Result<codec::DecodeResult>> answers(tasks.size(), codec::DecodeResult{});
    std::vector<codec::cuda::GpuPhaseDevice> devices;
    for (std::size_t place = 0; place < devices_.size() && status.is_ok(); ++place)
        devices.push_back({&context_->decoder->stream(place), &context_->phase_codecs[place]});
    if (status.is_ok()) status = codec::cuda::decode_last_phases(devices, requests, answers);
    look_after(status);
    const auto ended = clock.now();
    for (std::size_t number = 0; number < tasks.size(); ++number) {
        auto& task = *tasks[number];
        task.took = (ended - begin) / static_cast<int>(tasks.size());
        task.began = begin;
        task.ended = ended;
        if (status.is_ok())
            task.decoded.emplace(std::move(answers[number]));
        else
            task.decoded.emplace(status.with_context("GPU " + names()));
    }
}

}  // namespace gradsieve::daemon

// What a worker codes: as many tensors at a time as are at hand, in batches of which two are under way.
#include "codec/cuda/gpu_difference.hpp"
#include "codec/cuda/gpu_phases.hpp"
#include "daemon/gpu_addresses.hpp"
#include "daemon/gpu_context.hpp"
#include "daemon/gpu_worker.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::daemon {

namespace {

using codec::cuda::ElementType;

/// What the encoder is asked for a batch; requests point into the other members, which stay where they are.
struct EncodeTurn {
    std::span<GpuTask*> tasks;
    TimePoint begun{};
    std::vector<codec::cuda::GpuEncodeRequest> requests;
    std::vector<std::vector<ElementType>> types;
    std::vector<std::vector<int>> sample_devices, moment_devices;
    std::vector<EncodeAddresses> addresses;
    std::vector<codec::Pipeline> passes;  ///< of first phases
    std::vector<codec::EncodeResult> results;

    void ask(std::span<GpuTask*> batch, std::span<const int> ordinals);
};

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
        requests[number].request = task.request;
        if (task.kind == CodecTask::Kind::kScopePhase) {
            requests[number].scope = {task.phase, task.terms, &*task.tensor->member};
            if (task.phase != codec::ScopePhase::kObserve) {  // samples are read in that one alone
                requests[number].parts = task.gpu_parts;
                continue;
            }
        }
        for (std::size_t rank = 0; rank < task.gpu_buffers.size(); ++rank) {
            const auto& buffer = *task.gpu_buffers[rank];
            types[number].insert(types[number].end(), task.gpu_sample_counts[rank], buffer.type);
            sample_devices[number].insert(sample_devices[number].end(), task.gpu_sample_counts[rank], buffer.device);
            if (!task.request.second_moments.empty()) moment_devices[number].push_back(buffer.device);
        }
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

/// How many of the tasks, from the first on, are a batch: up to `elements`, and one at least.
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

}  // namespace

Status GpuWorker::take_norm(CodecTask& task) {
    const bool goes_on = task.kind == CodecTask::Kind::kScopePhase && task.phase != codec::ScopePhase::kSettle;
    if (goes_on) return {};
    if (!task.wants_residual_norm || !task.is_last_phase() || !codec::has_residual(task.tensor->pipeline)) return {};
    std::vector<codec::cuda::ResidualPart> parts;
    for (std::size_t place = 0; place < task.gpu_parts.size(); ++place) {
        const auto& part = task.gpu_parts[place];
        parts.push_back({&context_->encoder().stream(place), part.out.residual, part.range.elements});
    }
    if (parts.empty())
        parts.push_back({&context_->encoder().stream(), task.request.out.residual, task.tensor->elements});
    GRADSIEVE_ASSIGN(const double sum, context_->norm.square_sum(parts));
    task.residual_norm = std::sqrt(sum);
    return {};
}

void GpuWorker::encode(std::span<GpuTask*> tasks) {
    const auto skipping =
        std::ranges::stable_partition(tasks, [](const auto* task) { return !task->codec->tensor->held; });
    encode_or_reuse(skipping);
    tasks = tasks.first(tasks.size() - skipping.size());
    std::array<EncodeTurn, 2> turns;
    Status status = ensure_context();
    std::size_t begun = 0;
    std::size_t finished = 0;
    const SteadyClock clock;
    const auto finish = [&] {
        auto& turn = turns[finished % 2];
        auto& encoder = context_->encoders[finished % 2];
        ++finished;
        const auto answer = encoder->finish(turn.results);
        if (status.is_ok()) status = answer;
        if (status.is_ok()) status = finish_first_phases(turn.tasks, *encoder, turn.results);
        for (auto* task : turn.tasks)
            if (status.is_ok()) status = take_norm(*task->codec);
        if (!status.is_ok()) return;
        const auto ended = clock.now();
        const auto took = (ended - turn.begun) / static_cast<int>(turn.tasks.size());
        for (std::size_t number = 0; number < turn.tasks.size(); ++number) {
            auto& task = *turn.tasks[number]->codec;
            task.took += took;
            if (task.began == TimePoint{}) task.began = turn.begun;
            task.ended = ended;
            if (const auto& signature = encoder->signature(number)) task.signature = signature;
            task.encoded.emplace(std::move(turn.results[number]));
        }
        hand_back(turn.tasks);
    };
    for (auto rest = tasks; !rest.empty() && status.is_ok(); ++begun) {
        const auto count = batch_length(rest, pace_.batch_elements);
        auto& turn = turns[begun % 2];
        turn.ask(rest.first(count), ordinals_);
        turn.begun = clock.now();
        rest = rest.subspan(count);
        if (status = context_->encoders[begun % 2]->begin(turn.requests); !status.is_ok()) break;
        if (begun > finished) finish();
    }
    while (finished < begun) finish();
    look_after(status);
    if (status.is_ok()) return;
    for (auto* task : tasks)
        if (task->codec) task->codec->encoded.emplace(status.with_context("GPU " + names()));
}

Status GpuWorker::keep_state(const CodecTask& task) {
    const auto& pipeline = task.tensor->pipeline;
    const auto& decoder = *context_->decoder;
    for (std::size_t place = 0; place < task.gpu_parts.size(); ++place) {
        const auto& part = task.gpu_parts[place];
        GRADSIEVE_TRY(codec::cuda::keep_state(decoder.stream(place), pipeline, part.range.elements, part.in, part.out));
    }
    if (!task.gpu_parts.empty()) return {};
    return codec::cuda::keep_state(decoder.stream(), pipeline, task.tensor->elements, task.request.in,
                                   task.request.out);
}

/// Signatures say which steps are worth a look before anything is encoded: a batch is through before the next begins.
void GpuWorker::encode_or_reuse(std::span<GpuTask*> tasks) {
    if (tasks.empty()) return;
    Status status = ensure_context();
    const SteadyClock clock;
    for (auto rest = tasks; !rest.empty() && status.is_ok();) {
        const auto begin = clock.now();
        const auto batch = rest.first(batch_length(rest, pace_.batch_elements));
        rest = rest.subspan(batch.size());
        EncodeTurn turn;
        turn.ask(batch, ordinals_);
        std::vector<codec::cuda::GpuReuseRequest> requests;
        for (std::size_t number = 0; number < batch.size(); ++number)
            requests.push_back({turn.requests[number], batch[number]->codec->held});
        std::vector<codec::cuda::GpuReuseResult> results(batch.size());
        status = context_->reuse.encode(*context_->encoders.front(), *context_->decoder, requests, results);
        for (auto* task : batch)
            if (status.is_ok()) status = take_norm(*task->codec);
        if (!status.is_ok()) break;
        const auto ended = clock.now();
        for (std::size_t number = 0; number < batch.size(); ++number) {
            auto& task = *batch[number]->codec;
            task.took = (ended - begin) / static_cast<int>(batch.size());
            task.began = begin;
            task.ended = ended;
            task.take_reuse(std::move(results[number].reuse), std::move(results[number].gradient));
        }
        hand_back(batch);
    }
    look_after(status);
    if (status.is_ok()) return;
    for (auto* task : tasks)
        if (task->codec) task->codec->encoded.emplace(status.with_context("GPU " + names()));
}

void GpuWorker::decode(std::span<CodecTask*> tasks) {
    const SteadyClock clock;
    const auto begin = clock.now();
    struct Parts {
        std::vector<std::vector<codec::ChunkView>> views;
        std::vector<codec::Contribution> contributions;
        std::vector<std::vector<void*>> addresses;
        std::vector<codec::cuda::GpuResult> results;
        std::vector<codec::cuda::GpuDecodeBase> bases;
    };
    std::vector<Parts> parts(tasks.size());
    std::vector<codec::cuda::GpuDecodeRequest> requests;
    std::vector<CodecTask*> decoding;
    Status status = ensure_context();
    for (std::size_t number = 0; number < tasks.size() && status.is_ok(); ++number) {
        auto& task = *tasks[number];
        auto& part = parts[number];
        part.addresses = result_addresses(task, ordinals_);
        for (std::size_t rank = 0; rank < task.gpu_buffers.size(); ++rank) {
            const auto& buffer = *task.gpu_buffers[rank];
            part.results.push_back({buffer.slice(0), buffer.type, false, buffer.device, part.addresses[rank]});
        }
        if (task.fills_not_a_number) {
            for (const auto& result : part.results)
                if (status.is_ok())
                    status = codec::cuda::fill_bytes(context_->decoder->stream(place_of(result.device)), result.data,
                                                     task.tensor->elements * element_bytes(result.type), 0xFF);
            task.decoded.emplace(codec::DecodeResult{});
            continue;
        }
        part.views.resize(task.payloads.size());
        part.contributions.resize(task.payloads.size());
        for (std::size_t node = 0; node < task.payloads.size(); ++node) {
            for (const auto& [chunk, view] : task.payloads[node].chunks)
                part.views[node].push_back({chunk, view.bytes()});
            part.contributions[node] = {task.factors[node], part.views[node]};
        }
        const auto contributions = task.resolve(part.contributions);
        if (!contributions.is_ok()) {
            task.decoded.emplace(contributions.error());
            continue;
        }
        part.bases = decode_bases(task);
        if (task.keeps_state) status = keep_state(task);
        requests.push_back({task.tensor->id, task.step, task.tensor->elements, *contributions, part.results, nullptr,
                            task.tensor->gpu_ranges, part.bases});
        decoding.push_back(&task);
    }
    std::vector<Result<codec::DecodeResult>> answers(requests.size(), codec::DecodeResult{});
    if (status.is_ok() && !requests.empty()) status = context_->decoder->begin(requests);
    if (status.is_ok() && !requests.empty()) status = context_->decoder->finish(answers);
    for (std::size_t number = 0; number < decoding.size() && status.is_ok(); ++number)
        decoding[number]->decoded.emplace(std::move(answers[number]));
    for (std::size_t place = 0; place < devices_.size() && status.is_ok(); ++place)
        status = context_->decoder->stream(place).synchronize();  // fills too
    const auto ended = clock.now();
    for (auto* task : tasks) {
        task->took = (ended - begin) / static_cast<int>(tasks.size());
        task->began = begin;
        task->ended = ended;
    }
    if (status.is_ok()) return;
    look_after(status);
    for (auto* task : tasks) task->decoded.emplace(status.with_context("GPU " + names()));
}

}  // namespace gradsieve::daemon

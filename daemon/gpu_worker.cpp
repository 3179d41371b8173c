#include "daemon/gpu_worker.hpp"

#include "codec/cuda/device_values.hpp"
#include "codec/cuda/residual_norm.hpp"

#include <pthread.h>
#include <algorithm>
#include <chrono>
#include <cmath>

namespace gradsieve::daemon {

namespace {

using codec::cuda::ElementType;

/// So long after the last binding the context, a few hundred MiB of the card, goes back to the driver.
constexpr auto kContextKept = std::chrono::seconds(60);

ByteCount element_bytes(ElementType type) { return type == ElementType::kF32 ? 4 : 2; }

Result<codec::cuda::ImportedMemory> open_memory(int device, GpuMemorySpec& spec) {
    if (spec.pieces.empty())
        return codec::cuda::ImportedMemory::open(device, spec.handle, spec.offset_bytes, spec.bytes);
    return codec::cuda::ImportedMemory::open(device, spec.pieces);
}

}  // namespace

struct GpuWorker::Context {
    std::unique_ptr<codec::cuda::GpuEncoder> encoder;
    std::unique_ptr<codec::cuda::GpuDecoder> decoder;
    codec::cuda::ResidualNorm norm;
};

GpuWorker::GpuWorker(codec::cuda::DeviceInfo device, WakeFlag& conductor_wake)
    : device_(std::move(device)), conductor_wake_(conductor_wake), thread_([this] { run(); }) {}

GpuWorker::~GpuWorker() { stop(); }

void GpuWorker::stop() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    has_news_.notify_one();
    thread_.join();
}

void GpuWorker::give(GpuTask task) {
    {
        const std::lock_guard lock(mutex_);
        todo_.push_back(std::move(task));
    }
    has_news_.notify_one();
}

std::deque<GpuTask> GpuWorker::take_done() {
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
}

bool GpuWorker::has_done() const {
    const std::lock_guard lock(mutex_);
    return !done_.empty();
}

std::size_t GpuWorker::queue_depth() const {
    const std::lock_guard lock(mutex_);
    return todo_.size();
}

GpuFigures GpuWorker::figures() const {
    const std::lock_guard lock(mutex_);
    return figures_;
}

void GpuWorker::run() {
    pthread_setname_np(pthread_self(), ("gpu" + std::to_string(device_.ordinal)).c_str());
    std::unique_lock lock(mutex_);
    while (true) {
        const bool may_idle = !context_ || buffers_open_ > 0 || state_bytes_ > 0;
        const auto has_work = [this] { return is_stopping_ || !todo_.empty(); };
        if (may_idle) {
            has_news_.wait(lock, has_work);
        } else if (!has_news_.wait_for(lock, kContextKept, has_work)) {
            lock.unlock();
            context_.reset();
            static_cast<void>(codec::cuda::release_context(device_.ordinal));
            publish_figures();
            lock.lock();
            continue;
        }
        if (todo_.empty()) break;  // stopping, and nothing left that owns anything of the GPU
        auto batch = std::exchange(todo_, {});
        lock.unlock();
        run_batch(batch);
        publish_figures();
        lock.lock();
        for (auto& task : batch) done_.push_back(std::move(task));
        lock.unlock();
        conductor_wake_.ring();
        lock.lock();
    }
    lock.unlock();
    context_.reset();
}

void GpuWorker::run_batch(std::deque<GpuTask>& batch) {
    std::vector<CodecTask*> encodes;
    std::vector<CodecTask*> decodes;
    for (auto& task : batch) {
        if (task.bind) {
            task.bind->status = bind(*task.bind);
            look_after(task.bind->status);
        }
        if (task.copy) {
            task.copy->status = copy(*task.copy);
            look_after(task.copy->status);
        }
        if (task.codec) (task.codec->kind == CodecTask::Kind::kEncode ? encodes : decodes).push_back(task.codec.get());
    }
    const SteadyClock clock;
    const auto begin = clock.now();
    if (!encodes.empty()) encode(encodes);
    if (!decodes.empty()) decode(decodes);
    const auto count = static_cast<int>(std::max<std::size_t>(1, encodes.size() + decodes.size()));
    for (auto* task : encodes) task->took = (clock.now() - begin) / count;
    for (auto* task : decodes) task->took = (clock.now() - begin) / count;
    // Last: what a task of this batch may still have used.
    for (auto& task : batch) {
        if (!task.release) continue;
        buffers_open_ -= task.release->buffers.size();
        for (const auto& state : task.release->state) state_bytes_ -= state.size();
        task.release->buffers.clear();
        task.release->state.clear();
    }
}

Status GpuWorker::ensure_context() {
    if (context_) return {};
    auto context = std::make_unique<Context>();
    GRADSIEVE_ASSIGN(context->encoder, codec::cuda::GpuEncoder::make(device_.ordinal, {}));
    GRADSIEVE_ASSIGN(context->decoder, codec::cuda::GpuDecoder::make(device_.ordinal));
    context_ = std::move(context);
    return {};
}

Status GpuWorker::bind(GpuBindTask& task) {
    GRADSIEVE_TRY(ensure_context());
    std::vector<std::unique_ptr<GpuBuffer>> buffers;
    for (auto& spec : task.specs) {
        auto opened = [&]() -> Result<std::unique_ptr<GpuBuffer>> {
            GRADSIEVE_ASSIGN(auto gradient, open_memory(device_.ordinal, spec.gradient));
            auto buffer = std::unique_ptr<GpuBuffer>(new GpuBuffer{.gradient = std::move(gradient)});
            if (spec.second_moment) {
                GRADSIEVE_ASSIGN(buffer->second_moment, open_memory(device_.ordinal, *spec.second_moment));
            }
            buffer->type = spec.type;
            buffer->sample_stride_bytes = spec.sample_stride_bytes;
            buffer->device = device_.ordinal;
            return buffer;
        }();
        if (!opened.is_ok()) return opened.error();
        buffers.push_back(std::move(*opened));
    }
    GRADSIEVE_TRY(check_limit(task));
    if (task.state_bytes > 0) {
        GRADSIEVE_ASSIGN(auto state, codec::cuda::DeviceMemory::make(device_.ordinal, task.state_bytes,
                                                                     "the job's residual and variance"));
        GRADSIEVE_TRY(codec::cuda::fill_bytes(context_->encoder->stream(), state.data(), state.size(), 0));
        state_bytes_ += state.size();
        task.state.emplace(std::move(state));
    }
    buffers_open_ += buffers.size();
    task.descriptors.clear();  // what they name is mapped
    task.buffers = std::move(buffers);
    return {};
}

Status GpuWorker::copy(GpuCopyTask& task) {
    GRADSIEVE_TRY(ensure_context());
    const auto& stream = context_->decoder->stream();
    for (auto* buffer : task.buffers)
        GRADSIEVE_TRY(task.is_read ? codec::cuda::read_values(stream, buffer->slice(0), buffer->type, task.values)
                                   : codec::cuda::write_values(stream, task.values, buffer->slice(0), buffer->type));
    return {};
}

Status GpuWorker::check_limit(const GpuBindTask& task) const {
    const auto held = state_bytes_ + context_->encoder->workspace_bytes() + context_->decoder->workspace_bytes();
    if (task.memory_limit_bytes == 0 || held + task.state_bytes <= task.memory_limit_bytes) return {};
    const auto mebibytes = [](ByteCount bytes) { return std::to_string((bytes + (1U << 20U) - 1) >> 20U); };
    return {StatusCode::kResourceExhausted, "state of " + mebibytes(task.state_bytes) + " MiB on GPU " + device_.uuid +
                                                ": " + mebibytes(held) + " of " + mebibytes(task.memory_limit_bytes) +
                                                " MiB are in use: raise gpu.memory_limit_mib, or end another job"};
}

Status GpuWorker::take_norm(CodecTask& task) {
    if (!task.wants_residual_norm || task.request.out.residual == nullptr) return {};
    GRADSIEVE_ASSIGN(const double sum, context_->norm.square_sum(context_->encoder->stream(), task.request.out.residual,
                                                                 task.tensor->elements));
    task.residual_norm = std::sqrt(sum);
    return {};
}

void GpuWorker::encode(std::span<CodecTask*> tasks) {
    std::vector<codec::cuda::GpuEncodeRequest> requests(tasks.size());
    std::vector<std::vector<ElementType>> types(tasks.size());
    std::vector<codec::EncodeResult> results(tasks.size());
    Status status = ensure_context();
    for (std::size_t number = 0; number < tasks.size() && status.is_ok(); ++number) {
        const auto& task = *tasks[number];
        for (std::size_t rank = 0; rank < task.gpu_buffers.size(); ++rank)
            types[number].insert(types[number].end(), task.gpu_sample_counts[rank], task.gpu_buffers[rank]->type);
        requests[number].request = task.request;
        requests[number].sample_types = types[number];
    }
    if (status.is_ok()) status = context_->encoder->encode(requests, results);
    for (auto* task : tasks)
        if (status.is_ok()) status = take_norm(*task);
    look_after(status);
    for (std::size_t number = 0; number < tasks.size(); ++number) {
        if (status.is_ok())
            tasks[number]->encoded.emplace(std::move(results[number]));
        else
            tasks[number]->encoded.emplace(status.with_context("GPU " + device_.uuid));
    }
}

void GpuWorker::decode(std::span<CodecTask*> tasks) {
    struct Parts {
        std::vector<std::vector<codec::ChunkView>> views;
        std::vector<codec::Contribution> contributions;
        std::vector<codec::cuda::GpuResult> results;
    };
    std::vector<Parts> parts(tasks.size());
    std::vector<codec::cuda::GpuDecodeRequest> requests;
    std::vector<CodecTask*> decoding;
    Status status = ensure_context();
    for (std::size_t number = 0; number < tasks.size() && status.is_ok(); ++number) {
        auto& task = *tasks[number];
        auto& part = parts[number];
        for (const auto* buffer : task.gpu_buffers) part.results.push_back({buffer->slice(0), buffer->type, false});
        if (task.fills_not_a_number) {
            for (const auto& result : part.results)
                if (status.is_ok())
                    status = codec::cuda::fill_bytes(context_->decoder->stream(), result.data,
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
        requests.push_back(
            {task.tensor->id, task.step, task.tensor->elements, part.contributions, part.results, nullptr});
        decoding.push_back(&task);
    }
    std::vector<Result<codec::DecodeResult>> answers(requests.size(), codec::DecodeResult{});
    if (status.is_ok() && !requests.empty()) status = context_->decoder->begin(requests);
    if (status.is_ok() && !requests.empty()) status = context_->decoder->finish(answers);
    for (std::size_t number = 0; number < decoding.size() && status.is_ok(); ++number)
        decoding[number]->decoded.emplace(std::move(answers[number]));
    if (status.is_ok()) status = context_->decoder->stream().synchronize();  // fills too
    if (status.is_ok()) return;
    look_after(status);
    for (auto* task : tasks) task->decoded.emplace(status.with_context("GPU " + device_.uuid));
}

void GpuWorker::look_after(const Status& status) {
    if (status.is_ok() || !failure_.empty()) return;
    const auto device = codec::cuda::check_device(device_.ordinal);
    if (!device.is_ok()) failure_ = "GPU " + device_.uuid + ": " + device.text();
}

void GpuWorker::publish_figures() {
    GpuFigures figures;
    figures.failure = failure_;
    figures.has_context = context_ != nullptr;
    figures.state_bytes = state_bytes_;
    figures.buffers = buffers_open_;
    if (context_) {
        figures.workspace_bytes = context_->encoder->workspace_bytes() + context_->decoder->workspace_bytes();
        figures.threshold_misses = context_->encoder->threshold_misses();
    }
    const std::lock_guard lock(mutex_);
    figures_ = figures;
}

}  // namespace gradsieve::daemon

#include "daemon/gpu_worker.hpp"

#include "daemon/gpu_context.hpp"

#include <pthread.h>
#include <algorithm>
#include <chrono>

namespace gradsieve::daemon {

namespace {

using codec::cuda::ElementType;

/// So long after the last binding the context, a few hundred MiB of the card, goes back to the driver.
constexpr auto kContextKept = std::chrono::seconds(60);
/// Nobody is kept from a core by a worker that spins where there are so many.
constexpr unsigned kSpinCores = 8;
constexpr Duration kSpinFor = std::chrono::milliseconds(1);

Result<codec::cuda::ImportedMemory> open_memory(int device, GpuMemorySpec& spec, std::span<const int> users) {
    if (spec.pieces.empty())
        return codec::cuda::ImportedMemory::open(device, spec.handle, spec.offset_bytes, spec.bytes, users);
    return codec::cuda::ImportedMemory::open(device, spec.pieces, users);
}

std::vector<int> ordinals_of(std::span<const codec::cuda::DeviceInfo> devices) {
    std::vector<int> ordinals;
    for (const auto& device : devices) ordinals.push_back(device.ordinal);
    return ordinals;
}

}  // namespace

GpuWorker::GpuWorker(std::vector<codec::cuda::DeviceInfo> devices, GpuLedger& ledger, WakeFlag& conductor_wake,
                     const GpuPace& pace)
    : devices_(std::move(devices)),
      ordinals_(ordinals_of(devices_)),
      ledger_(ledger),
      conductor_wake_(conductor_wake),
      pace_(pace),
      holdings_(devices_.size()),
      figures_(devices_.size()),
      thread_([this] { run(); }) {}

std::string GpuWorker::names() const {
    std::string names;
    for (const auto& device : devices_) names += (names.empty() ? "" : ", ") + device.uuid;
    return names;
}

std::size_t GpuWorker::place_of(int ordinal) const {
    return static_cast<std::size_t>(std::distance(ordinals_.begin(), std::ranges::find(ordinals_, ordinal)));
}

const codec::cuda::Stream& GpuWorker::stream_of(int ordinal) const {
    return context_->encoder().stream(place_of(ordinal));
}

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

void GpuWorker::give(GpuTask task) { give(std::span(&task, 1)); }

void GpuWorker::give(std::span<GpuTask> tasks) {
    {
        const std::lock_guard lock(mutex_);
        for (auto& task : tasks) todo_.push_back(std::move(task));
        has_todo_.store(true, std::memory_order_relaxed);
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

std::vector<GpuFigures> GpuWorker::figures() const {
    const std::lock_guard lock(mutex_);
    return figures_;
}

void GpuWorker::run() {
    pthread_setname_np(pthread_self(), ("gpu" + std::to_string(ordinals_.front())).c_str());
    std::unique_lock lock(mutex_);
    while (true) {
        const bool is_held = std::ranges::any_of(
            holdings_, [](const GpuFigures& held) { return held.buffers > 0 || held.state_bytes > 0; });
        const bool may_idle = !context_ || is_held || host_states_ > 0;
        const auto has_work = [this] { return is_stopping_ || !todo_.empty(); };
        if (may_idle) {
            has_news_.wait(lock, has_work);
        } else if (!has_news_.wait_for(lock, kContextKept, has_work)) {
            lock.unlock();
            give_context_back();
            publish_figures();
            lock.lock();
            continue;
        }
        if (todo_.empty()) break;  // stopping, and nothing left that owns anything of the GPU
        auto batch = std::exchange(todo_, {});
        has_todo_.store(false, std::memory_order_relaxed);
        lock.unlock();
        const bool is_coding = std::ranges::any_of(batch, [](const GpuTask& task) { return task.codec != nullptr; });
        run_batch(batch);
        publish_figures();
        lock.lock();
        for (auto& task : batch)
            if (!task.is_empty()) done_.push_back(std::move(task));
        lock.unlock();
        conductor_wake_.ring();
        if (is_coding) spin_for_work();
        lock.lock();
    }
    lock.unlock();
    context_.reset();
}

void GpuWorker::hand_back(std::span<GpuTask* const> tasks) {
    {
        const std::lock_guard lock(mutex_);
        for (auto* task : tasks) done_.push_back({.codec = std::move(task->codec)});
    }
    conductor_wake_.ring();
}

/// While a step is under way the next task is near: an idle core of a virtual machine takes 50 to 200 us to wake up
/// (measured 2026-11), a good part of a step's time.
void GpuWorker::spin_for_work() const {
    if (std::thread::hardware_concurrency() < kSpinCores) return;
    const SteadyClock clock;
    const auto give_up = clock.now() + kSpinFor;
    while (!has_todo_.load(std::memory_order_relaxed) && clock.now() < give_up) {}
}

void GpuWorker::run_batch(std::deque<GpuTask>& batch) {
    std::vector<GpuTask*> encodes, second_phases;
    std::vector<CodecTask*> decodes, last_phases;
    for (auto& task : batch) {
        if (task.bind) {
            task.bind->status = bind(*task.bind);
            look_after(task.bind->status);
        }
        if (task.copy) {
            task.copy->status = ensure_context();
            if (task.copy->status.is_ok()) task.copy->status = task.copy->run(context_->decoder->stream());
            look_after(task.copy->status);
        }
        if (task.state_check) {
            task.state_check->status = check(*task.state_check);
            look_after(task.state_check->status);
        }
        if (task.codec && task.codec->kind != CodecTask::Kind::kDecode)
            (task.codec->step_phase == 0 ? encodes : second_phases).push_back(&task);
        if (task.codec && task.codec->kind == CodecTask::Kind::kDecode)
            (task.codec->step_phase == 0 ? decodes : last_phases).push_back(task.codec.get());
    }
    if (!second_phases.empty()) encode_second_phases(second_phases);
    if (!encodes.empty()) encode(encodes);
    if (!last_phases.empty()) decode_last_phases(last_phases);
    if (!decodes.empty()) decode(decodes);
    for (auto& task : batch)
        if (task.state_read) {
            task.state_read->status = read(*task.state_read);
            look_after(task.state_read->status);
        }
    // Last: what a task of this batch may still have used.
    for (auto& task : batch) {
        if (task.release) release(*task.release);
    }
}

void GpuWorker::release(GpuReleaseTask& task) {
    for (const auto& buffer : task.buffers) {
        --holdings_[place_of(buffer->device)].buffers;
        for (std::size_t place = 0; place < ordinals_.size(); ++place)
            if (!buffer->is_open_to(ordinals_[place])) --holdings_[place].unreached;
    }
    for (const auto& state : task.state) holdings_[place_of(state.device())].state_bytes -= state.size();
    task.buffers.clear();
    task.state.clear();
    if (task.host_state) --host_states_;
    task.host_state.reset();
}

Status GpuWorker::ensure_context() {
    if (context_) return {};
    for (const int ordinal : ordinals_) ledger_.enter(ordinal);
    const auto make = [this]() -> Result<std::unique_ptr<GpuContext>> {
        auto context = std::make_unique<GpuContext>();
        const auto mirrors = std::make_shared<codec::cuda::MirrorPool>();
        for (auto& encoder : context->encoders) {
            GRADSIEVE_ASSIGN(encoder, codec::cuda::GpuEncoder::make(
                                          ordinals_, {.multiprocessors = pace_.multiprocessors, .mirrors = mirrors}));
        }
        GRADSIEVE_ASSIGN(
            context->decoder,
            codec::cuda::GpuDecoder::make(ordinals_, {.multiprocessors = pace_.multiprocessors, .mirrors = mirrors}));
        for (const auto& device : devices_) context->phase_codecs.emplace_back(device.ordinal, device.multiprocessors);
        return context;
    };
    auto context = make();
    if (context.is_ok()) {
        context_ = std::move(*context);
        return {};
    }
    for (const int ordinal : ordinals_) ledger_.leave(ordinal);
    return context.error();
}

void GpuWorker::give_context_back() {
    context_.reset();
    publish_figures();  // no workspace any more, before another worker can come
    for (const int ordinal : ordinals_) ledger_.leave(ordinal);
}

Status GpuWorker::bind(GpuBindTask& task) {
    GRADSIEVE_TRY(ensure_context());
    const int device = ordinals_[task.place];
    std::vector<std::unique_ptr<GpuBuffer>> buffers;
    for (auto& spec : task.specs) {
        auto opened = [&]() -> Result<std::unique_ptr<GpuBuffer>> {
            GRADSIEVE_ASSIGN(auto gradient, open_memory(device, spec.gradient, ordinals_));
            auto buffer = std::unique_ptr<GpuBuffer>(new GpuBuffer{.gradient = std::move(gradient)});
            if (spec.second_moment) {
                GRADSIEVE_ASSIGN(buffer->second_moment, open_memory(device, *spec.second_moment, ordinals_));
            }
            buffer->type = spec.type;
            buffer->sample_stride_bytes = spec.sample_stride_bytes;
            buffer->device = device;
            return buffer;
        }();
        if (!opened.is_ok()) return opened.error();
        buffers.push_back(std::move(*opened));
    }
    if (task.state) GRADSIEVE_TRY(set_up(*task.state));
    if (task.host_state_fd.is_open()) {
        GRADSIEVE_ASSIGN(task.host_state,
                         codec::cuda::SharedHostMemory::map(task.host_state_fd.get(), task.host_state_bytes));
        ++host_states_;
    }
    holdings_[task.place].buffers += buffers.size();
    for (const auto& buffer : buffers)
        for (std::size_t place = 0; place < ordinals_.size(); ++place)
            if (!buffer->is_open_to(ordinals_[place])) ++holdings_[place].unreached;
    task.descriptors.clear();  // what they name is mapped
    task.buffers = std::move(buffers);
    return {};
}

void GpuWorker::look_after(const Status& status) {
    if (status.is_ok()) return;
    for (std::size_t place = 0; place < devices_.size(); ++place) {
        const auto device = codec::cuda::check_device(ordinals_[place]);
        if (!device.is_ok()) holdings_[place].failure = "GPU " + devices_[place].uuid + ": " + device.text();
    }
}

void GpuWorker::publish_figures() {
    for (std::size_t place = 0; place < devices_.size(); ++place) {
        auto& figures = holdings_[place];
        const auto before = figures.workspace_bytes;
        figures.has_context = context_ != nullptr;
        figures.is_direct.reset();
        figures.workspace_bytes = 0;
        if (context_) {
            figures.workspace_bytes = context_->workspace_bytes(place);
            // Of the whole worker; told where it cannot be counted twice.
            figures.threshold_misses = place == 0 ? context_->threshold_misses() : 0;
            if (devices_.size() > 1) figures.is_direct = context_->encoder().is_direct(place) && figures.unreached == 0;
        }
        ledger_.note_workspace(ordinals_[place], before, figures.workspace_bytes);
    }
    const std::lock_guard lock(mutex_);
    figures_ = holdings_;
}

}  // namespace gradsieve::daemon

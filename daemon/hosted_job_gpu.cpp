// The part of a job that has gradients in device memory: what its ranks bind, where the state of such tensors lies, and
// what a task for a GPU needs. Which GPUs those are: hosted_job_gpu_set.cpp.
#include "daemon/gpu_pool.hpp"
#include "daemon/hosted_job.hpp"

#include <algorithm>

namespace gradsieve::daemon {

namespace {

GpuMemorySpec memory_spec(const shm::DeviceMemory& memory, ByteCount bytes, const shm::BindRequest& request,
                          std::span<const UniqueFd> descriptors) {
    GpuMemorySpec spec;
    spec.bytes = bytes;
    spec.handle = memory.handle;
    spec.offset_bytes = memory.offset_bytes;
    for (const auto& piece : memory.pieces)
        spec.pieces.push_back({descriptors[piece.descriptor].get(), request.descriptor_bytes[piece.descriptor],
                               piece.offset_bytes, piece.bytes});
    return spec;
}

GpuBufferSpec buffer_spec(const Session& session, const shm::Binding& binding, const shm::BindRequest& request,
                          ElementCount elements, std::span<const UniqueFd> descriptors) {
    GpuBufferSpec spec;
    spec.tensor_index = binding.tensor_index;
    spec.type = static_cast<codec::cuda::ElementType>(binding.type);
    spec.sample_stride_bytes = binding.sample_stride_bytes;
    const auto extent =
        shm::device_extent_bytes(session.tensors[binding.tensor_index], binding.type, binding.sample_stride_bytes);
    spec.gradient = memory_spec(binding.gradient, *extent, request, descriptors);
    if (binding.second_moment.kind != shm::MemoryKind::kNone)
        spec.second_moment = memory_spec(binding.second_moment, elements * sizeof(float), request, descriptors);
    return spec;
}

shm::BindReply refusal(std::uint64_t number, Status status) {
    shm::BindReply reply;
    reply.number = number;
    reply.status = std::move(status);
    return reply;
}

}  // namespace

Status HostedJob::check_places(std::span<const shm::TensorEntry> sorted) const {
    for (std::size_t number = 0; number < std::min(sorted.size(), tensors_.size()); ++number)
        if (sorted[number].name == tensors_[number].name && sorted[number].on_device != tensors_[number].on_device)
            return {StatusCode::kMismatch,
                    "tensor '" + sorted[number].name + "': this rank has it " +
                        (sorted[number].on_device ? "on a device" : "in host memory, or staged there") +
                        ", the job's other local ranks do not: allowed is one place for all "
                        "ranks of a node; register it the same way, with memory that can be "
                        "shared on all of them or on none"};
    return {};
}

Status HostedJob::check_binding(const Session& session, const shm::BindRequest& request,
                                std::size_t descriptor_count) const {
    GRADSIEVE_TRY(shm::check_bind_request(request, session.tensors, descriptor_count));
    if (is_ended_) return end_status_;
    if (members_.empty())
        return {StatusCode::kFailedPrecondition,
                "job '" + key().name + "' has not started: allowed is to bind after start; call start first"};
    if (session.is_binding)
        return {StatusCode::kBusy, "another bind request of this rank is under way: wait for its answer"};
    for (const auto& binding : request.bindings) {
        const auto& tensor = tensors_[session.number_of_index[binding.tensor_index]];
        if (tensor.tasks_out > 0 || session.is_handed_in[binding.tensor_index])
            return {StatusCode::kBusy, "tensor '" + tensor.name +
                                           "': a step of it is open: allowed is binding between steps; wait for it "
                                           "first"};
        if (binding.device != request.bindings.front().device)
            return {StatusCode::kUnimplemented, "tensor '" + tensor.name +
                                                    "': lies on another device than the request's first tensor: "
                                                    "allowed is one device a request; send one request for each"};
    }
    return {};
}

void HostedJob::answer_bind(Session& session, const shm::BindReply& reply) {
    const auto bytes = shm::build_bind_reply(reply);
    if (!reply.status.is_ok())
        surroundings_.log->warning("rank " + std::to_string(session.rank) + " binds: " + reply.status.text(),
                                   {.job = key().name});
    if (const auto sent = session.connection.send(bytes, {}); !sent.is_ok())
        surroundings_.log->warning("bind reply to rank " + std::to_string(session.rank) + ": " + sent.text(),
                                   {.job = key().name});
}

void HostedJob::on_bind_request(Session& session, const shm::BindRequest& request, std::vector<UniqueFd> descriptors) {
    if (const auto status = check_binding(session, request, descriptors.size()); !status.is_ok())
        return answer_bind(session, refusal(request.number, status));
    const auto is_binding = [](const shm::Binding& binding) { return !binding.is_unbinding(); };
    if (std::ranges::none_of(request.bindings, is_binding)) {
        std::vector<std::uint32_t> unbound;
        for (const auto& binding : request.bindings) unbound.push_back(binding.tensor_index);
        unbind(session, unbound);
        return answer_bind(session, refusal(request.number, {}));
    }
    if (gpu_ == nullptr) return hold_bind(session, request, std::move(descriptors));
    bind(session, request, std::move(descriptors));
}

void HostedJob::bind(Session& session, const shm::BindRequest& request, std::vector<UniqueFd> descriptors) {
    auto task = std::make_unique<GpuBindTask>();
    task->session_id = session.id;
    task->job_hash = exchange::job_hash(key());
    task->number = request.number;
    for (const auto& binding : request.bindings) {
        if (binding.is_unbinding()) {
            task->unbound.push_back(binding.tensor_index);
            continue;
        }
        const auto place = gpu_place_of(binding.device);
        if (!place.is_ok()) return answer_bind(session, refusal(request.number, place.error()));
        task->place = *place;
        const auto& tensor = tensors_[session.number_of_index[binding.tensor_index]];
        task->specs.push_back(buffer_spec(session, binding, request, tensor.elements, descriptors));
    }
    if (!has_state_ && !is_state_out_ && session.rank == sessions_.begin()->first) {
        if (const auto status = bring_state(*task); !status.is_ok())
            return answer_bind(session, refusal(request.number, status));
        is_state_out_ = true;
    }
    task->descriptors = std::move(descriptors);
    session.is_binding = true;
    ++tasks_out_;
    gpu_->give({.bind = std::move(task)});
}

void HostedJob::on_bind_done(Session& session, std::unique_ptr<GpuBindTask> task, TimePoint now) {
    if (retries(task, session, now)) return;
    --tasks_out_;
    if (task->brings_state) {
        is_state_out_ = false;
        task->status = take_over_state(*task);
        has_state_ = task->status.is_ok();
    }
    if (session.is_gone || !task->status.is_ok()) release(std::exchange(task->buffers, {}));
    if (session.is_gone) return;
    session.is_binding = false;
    shm::BindReply reply;
    reply.number = task->number;
    reply.status = task->status;
    if (task->status.is_ok()) unbind(session, task->unbound);
    for (std::size_t place = 0; place < task->buffers.size(); ++place)
        std::swap(session.gpu_buffers[task->specs[place].tensor_index], task->buffers[place]);
    release(std::move(task->buffers));  // those that stood there before
    answer_bind(session, reply);
}

void HostedJob::unbind(Session& session, std::span<const std::uint32_t> tensor_indices) {
    std::vector<std::unique_ptr<GpuBuffer>> old;
    for (const auto index : tensor_indices) old.push_back(std::move(session.gpu_buffers[index]));
    release(std::move(old));
}

void HostedJob::release(std::vector<std::unique_ptr<GpuBuffer>> buffers) {
    std::erase(buffers, nullptr);
    if (buffers.empty()) return;
    auto task = std::make_unique<GpuReleaseTask>();
    task->buffers = std::move(buffers);
    gpu_->give({.release = std::move(task)});
}

void HostedJob::on_gpu_lost(const GpuWorker& worker, const std::string& text, TimePoint now) {
    if (gpu_ != &worker || is_ended_) return;
    for (auto& [rank, session] : sessions_)
        if (!session->has_detached && !is_ended_) machine_.on_rank_left(rank, false, text, now);
}

void HostedJob::fill_not_a_number(HostedTensor& tensor, const exchange::DeliverResult& action) {
    auto task = std::make_unique<CodecTask>();
    task->kind = CodecTask::Kind::kDecode;
    task->fills_not_a_number = true;
    task->job_hash = exchange::job_hash(key());
    task->tensor = &tensor;
    task->step = action.step;
    dispatch(std::move(task), {});
}

void HostedJob::add_gpu_buffers(CodecTask& task) const {
    task.gpu_buffers.clear();  // of a scope's phase before
    task.gpu_sample_counts.clear();
    task.gpu_parts.clear();
    for (const auto& input : task.tensor->inputs) {
        task.gpu_buffers.push_back(input.session->gpu_buffers[input.tensor_index].get());
        task.gpu_sample_counts.push_back(input.sample_count);
    }
    const auto& tensor = *task.tensor;
    for (std::size_t device = 0; device < tensor.gpu_states.size(); ++device)
        task.gpu_parts.push_back({tensor.gpu_ranges[device], tensor.gpu_states[device][1 - task.out_generation],
                                  tensor.gpu_states[device][task.out_generation]});
}

}  // namespace gradsieve::daemon

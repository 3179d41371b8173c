// How a job's actions are carried out: the meeting of codec, sessions and network for one tensor at a time.
#include "daemon/averages.hpp"
#include "daemon/hosted_job.hpp"

#include <algorithm>
#include <cstring>

namespace gradsieve::daemon {

namespace {

/// Below this many element visits a task costs less than handing it to another thread and back.
constexpr ElementCount kInlineElements = 32 * 1024;
constexpr std::size_t kStepTimesKept = 256;

double milliseconds(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

}  // namespace

void HostedJob::carry_out(exchange::Action& action, TimePoint now) {
    std::visit([&](auto& alternative) { act(alternative, now); }, action);
}

void HostedJob::close_hand_ins(const HostedTensor& tensor) {
    for (auto& [rank, session] : sessions_) session->is_handed_in[session->index_of_number[tensor.number]] = false;
}

void HostedJob::complete_all(shm::CompletionKind kind, const About& about, Step step, const Status& status,
                             std::uint64_t value) {
    // A GPU may still write the results of a step that has failed meanwhile: nobody is told before it has ended, and
    // what is said afterwards keeps its order.
    if (!held_.empty() || (!status.is_ok() && gpu_decodes_out_ > 0)) {
        held_.push_back({kind, about, step, status, value});
        return;
    }
    shm::Completion completion;
    completion.kind = kind;
    completion.code = status.code();
    completion.step = step;
    completion.value = value;
    completion.set_text(status.text());
    if (trace_ && kind == shm::CompletionKind::kTensor && about.tensor) trace_->on_handed_back(*about.tensor, step);
    for (auto& [rank, session] : sessions_) {
        if (about.tensor) completion.index = session->index_of_number[*about.tensor];
        if (about.group) completion.index = session->first_of_group[*about.group];
        complete(*session, completion);
    }
}

void HostedJob::say_held() {
    for (const auto& held : std::exchange(held_, {}))
        complete_all(held.kind, held.about, held.step, held.status, held.value);
}

void HostedJob::act(exchange::SendFrame& action, TimePoint now) {
    meter_.on_sent(action.to, action.answered_bytes, now);
    if (surroundings_.network == nullptr) return;
    transport::OutFrame frame{{action.type, action.epoch, action.step}, std::move(action.parts)};
    FrameMark mark;
    if (action.number != 0) mark = {exchange::job_hash(key()), action.number};
    surroundings_.network->send(action.to, action.is_bulk ? transport::Lane::kData : transport::Lane::kControl,
                                std::move(frame), mark);
}

void HostedJob::act(exchange::StartJob& action, TimePoint now) {
    members_ = action.members;
    for (auto& tensor : tensors_) tensor.epoch = action.epoch;
    if (const auto status = begin_from(action); !status.is_ok())
        return machine_.on_rank_left(sessions_.begin()->first, false, status.text(), now);
    for (auto& tensor : tensors_) tensor.start_reuse(members_, surroundings_.config->self);
    for (const auto& member : members_)
        factors_[member.peer] = static_cast<float>(static_cast<double>(member.ranks.size()) / spec_.world_size);
    if (const auto status = lay_out_shards(); !status.is_ok())
        return machine_.on_rank_left(sessions_.begin()->first, false, status.text(), now);
    if (loads_out_ > 0)
        pending_start_ = action;
    else
        announce_start(action);
}

void HostedJob::announce_start(const exchange::StartJob& action) {
    if (!surroundings_.choice.empty())  // it was for this start alone
        if (const auto status = write_resume_choice(surroundings_.config->state_directory, key(), {}); !status.is_ok())
            surroundings_.log->warning(status.text(), {.job = key().name});
    if (std::ranges::any_of(action.first_steps, [](Step step) { return step > 1; })) fold_shards();
    for (exchange::GroupNumber group = 0; group < groups_.size(); ++group)
        steering_.start(group, groups_[group].committed, tensors_);
    for (const auto& group : groups_) plain_.start(group, tensors_);
    machine_.ask_for_answers(measures_link());
    for (auto& tensor : tensors_) {
        tensor.inputs.clear();
        for (auto& [rank, session] : sessions_)
            tensor.inputs.push_back({.session = session, .tensor_index = session->index_of_number[tensor.number]});
    }
    surroundings_.log->info("job runs: " + std::to_string(spec_.world_size) + " ranks on " +
                                std::to_string(members_.size()) + " nodes, codec " + choice_.text + " (" +
                                choice_.origin + ")",
                            {.job = key().name});
    for (exchange::GroupNumber group = 0; group < groups_.size(); ++group)
        complete_all(shm::CompletionKind::kStarted, {.group = group}, action.first_steps[group], {}, action.epoch);
    if (groups_.empty()) complete_all(shm::CompletionKind::kStarted, {}, 1, {}, action.epoch);
}

void HostedJob::act(exchange::DecodeTensor& action, TimePoint now) {
    if (trace_) trace_->on_decode_asked(action.tensor, action.step);
    auto task = std::make_unique<CodecTask>();
    task->kind = CodecTask::Kind::kDecode;
    task->job_hash = exchange::job_hash(key());
    task->tensor = &tensors_[action.tensor];
    task->step = action.step;
    task->step_phase = action.phase;
    task->request.selection_seed = selection_seed_;
    task->payloads = std::move(action.payloads);
    const bool is_of_shards = task->tensor->down && action.phase == 1;  // each average counts whole
    for (const auto& payload : task->payloads) task->factors.push_back(is_of_shards ? 1.0F : factors_[payload.peer]);
    if (codec::has_delta(task->tensor->pipeline))
        prepare_averages(*task->tensor, groups_[task->tensor->group].committed, *task);
    dispatch(std::move(task), now);
}

void HostedJob::dispatch(std::unique_ptr<CodecTask> task, TimePoint now) {
    ++tasks_out_;
    ++task->tensor->tasks_out;
    if (task->is_for_gpu()) {
        if (task->kind == CodecTask::Kind::kDecode) ++gpu_decodes_out_;
        add_gpu_buffers(*task);
        return task->tensor->gpu->give({.codec = std::move(task)});
    }
    if (task->work_elements() > kInlineElements) return surroundings_.pool->give(std::move(task));
    task->run(*surroundings_.workspace);
    on_task_done(std::move(task), now);
}

void HostedJob::on_task_done(std::unique_ptr<CodecTask> task, TimePoint now) {
    --tasks_out_;
    --task->tensor->tasks_out;
    if (task->is_for_gpu() && task->kind == CodecTask::Kind::kDecode && --gpu_decodes_out_ == 0) say_held();
    if (is_ended_) return;
    if (task->kind == CodecTask::Kind::kScopePhase)
        on_phase_done(std::move(task), now);
    else if (task->kind == CodecTask::Kind::kEncode)
        on_encode_done(*task, now);
    else
        on_decode_done(*task, now);
}

void HostedJob::on_encode_done(CodecTask& task, TimePoint now) {
    if (trace_) trace_task(task);
    auto& tensor = *task.tensor;
    groups_[tensor.group].open_times.encode_ms += milliseconds(task.took);
    tensor.coding.add(task.step, milliseconds(task.took), true);
    if (!task.encoded->is_ok()) return machine_.on_encode_failed(tensor.number, task.step, task.encoded->error(), now);
    auto& encoded = **task.encoded;
    if (encoded.non_finite) {
        std::size_t first_sample = 0;
        Rank rank = 0;
        for (const auto& input : tensor.inputs) {
            if (encoded.non_finite->sample_index >= first_sample) rank = input.session->rank;
            first_sample += input.sample_count;
        }
        const Status status(StatusCode::kNonFinite, "tensor '" + tensor.name + "': NaN or infinity from rank " +
                                                        std::to_string(rank) + " at element " +
                                                        std::to_string(encoded.non_finite->element) + " in step " +
                                                        std::to_string(task.step));
        surroundings_.log->warning(status.text(), {.job = key().name, .step = task.step});
        return machine_.on_encode_failed(tensor.number, task.step, status, now);
    }
    if (task.is_last_phase()) finish_generation(tensor, task.out_generation, task.step, task.scale);
    if (task.step_phase == 0) note_gradient(tensor, task);
    tensor.note_reuse(task);
    auto& totals = tensor.totals;
    totals.kept_elements += encoded.kept_elements;
    ByteCount payload_bytes = 0;
    std::vector<std::pair<std::uint32_t, SharedView>> chunks;
    for (auto& chunk : encoded.chunks) {
        payload_bytes += chunk.bytes.size();
        chunks.emplace_back(chunk.chunk_index, share(std::move(chunk.bytes)));
    }
    totals.payload_bytes += payload_bytes;
    totals.payload_bytes_all += payload_bytes;
    payload_bytes_unshared_ += static_cast<double>(payload_bytes);
    if (task.is_last_phase()) ++totals.steps;
    if (task.is_last_phase() && task.wants_residual_norm) {
        totals.residual_norm = task.residual_norm;
        totals.residual_step = task.step;
    }
    machine_.on_encoded(tensor.number, task.step, std::move(chunks), now);
}

void HostedJob::on_decode_done(CodecTask& task, TimePoint now) {
    auto& tensor = *task.tensor;
    if (task.fills_not_a_number)
        return complete_all(shm::CompletionKind::kTensor, {.tensor = tensor.number}, task.step, task.decoded->status());
    if (trace_) trace_task(task);
    groups_[tensor.group].open_times.decode_ms += milliseconds(task.took);
    tensor.coding.add(task.step, milliseconds(task.took), false);
    if (task.keeps_state && task.decoded->is_ok())
        finish_generation(tensor, task.out_generation, task.step, task.scale);
    const auto digest = task.decoded->is_ok() ? (*task.decoded)->digest : 0;
    machine_.on_decoded(tensor.number, task.step, digest, task.decoded->status(), now);
}

void HostedJob::act(exchange::DeliverResult& action, TimePoint) {
    auto& tensor = tensors_[action.tensor];
    close_hand_ins(tensor);
    if (action.fill_not_a_number && tensor.on_device) return fill_not_a_number(tensor, action);
    if (action.fill_not_a_number) tensor.result->fill_not_a_number();
    complete_all(shm::CompletionKind::kTensor, {.tensor = action.tensor}, action.step, action.status);
}

bool HostedJob::measures_link() const {
    return surroundings_.config->step_aside || steering_.budget(*surroundings_.config).is_set();
}

/// What the step cost decides how densely the next one is encoded, or whether it is coded at all.
void HostedJob::steer(const GroupTotals& group, const exchange::CommitStep& action) {
    const auto& config = *surroundings_.config;
    const bool is_measured = measures_link();
    machine_.ask_for_answers(is_measured);
    if (is_measured) meter_.settle();
    const SteeredStep took{.members = members_.size(),
                           .codec_ms = group.open_times.encode_ms + group.open_times.decode_ms,
                           .link_ms_per_byte = 1e3 * meter_.seconds_per_byte(),
                           .best_ms_per_byte = is_measured ? 1e3 * meter_.best_seconds_per_byte() : 0};
    // A budget goes first: what went plain is as it is written before the budget moves it.
    const bool may_step_aside = config.step_aside && !steering_.budget(config).is_set();
    plain_.on_committed(group, action.step, tensors_, took, may_step_aside);
    steering_.on_committed(action.group, action.step, tensors_, took, config);
}

void HostedJob::act(exchange::CommitStep& action, TimePoint now) {
    auto& group = groups_[action.group];
    group.committed = action.step;
    group.ended = action.step;
    steer(group, action);
    if (state_) state_->commit(action.group, action.step);  // before anybody is told
    for (const auto number : group.tensors) {
        if (auto& open = tensors_[number].open_signature)
            tensors_[number].sent_signature = std::exchange(open, std::nullopt);
        if (auto& held = tensors_[number].held) held->commit(action.step);
    }
    ++group.steps_committed;
    if (trace_) trace_->on_step_ended(action.group, action.step, true);
    const auto nodes = static_cast<double>(std::max<std::size_t>(1, members_.size()));
    allreduce_bytes_ += 2.0 * (nodes - 1.0) / nodes * 4.0 * static_cast<double>(group.elements);
    if (group.opened) {
        group.open_times.total_ms = milliseconds(now - *group.opened);
        step_times_.push_back(group.open_times);
        if (step_times_.size() > kStepTimesKept) step_times_.pop_front();
    }
    group.opened.reset();
    group.open_times = {};
    complete_all(shm::CompletionKind::kStepDone, {.group = action.group}, action.step, {});
    advance_pins(action.group, now);
    save_snapshot(action.group);
}

void HostedJob::act(exchange::AbortStep& action, TimePoint now) {
    auto& group = groups_[action.group];
    ++group.steps_aborted;
    if (trace_) trace_->on_step_ended(action.group, action.step, false);
    group.ended = action.step;
    group.opened.reset();
    group.open_times = {};
    for (const auto number : group.tensors) {
        close_hand_ins(tensors_[number]);
        tensors_[number].open_signature.reset();
        for (std::size_t index = 0; index < 2; ++index)
            if (tensors_[number].generations[index].stamp == action.step) invalidate(tensors_[number], index);
    }
    // Of a job that does not end for another reason, a step fails for a peer only where a rank has detached before it.
    if (action.status.is_ok() || action.status.code() == StatusCode::kPeerFailed) left_open_ = action.step;
    surroundings_.log->warning("step " + std::to_string(action.step) + " has no result: " +
                                   (action.status.is_ok() ? "all ranks have detached" : action.status.text()),
                               {.job = key().name, .step = action.step});
    complete_all(shm::CompletionKind::kStepDone, {.group = action.group}, action.step, action.status);
    end_scopes(action.group, action.step, now);
    advance_pins(action.group, now);
}

void HostedJob::act(exchange::ReadBroadcast& action, TimePoint now) {
    const auto& tensor = tensors_[action.tensor];
    if (tensor.on_device) return read_device_broadcast(action, now);
    auto* session = sessions_.at(action.root);
    const auto* values = session->memory->slice(session->index_of_number[action.tensor], 0);
    Bytes bytes(tensor.elements * sizeof(float));
    if (!bytes.empty()) std::memcpy(bytes.data(), values, bytes.size());
    machine_.on_broadcast_bytes(action.tensor, action.number, SharedView::take(std::move(bytes)), now);
}

void HostedJob::act(exchange::DeliverBroadcast& action, TimePoint) {
    auto& tensor = tensors_[action.tensor];
    auto status = action.status;
    const auto bytes = action.bytes.bytes();
    if (status.is_ok() && tensor.tasks_out > 0)
        status = {StatusCode::kFailedPrecondition,
                  "broadcast of tensor '" + tensor.name + "': a step of it is open: wait for its result first"};
    if (status.is_ok() && bytes.size() != tensor.elements * sizeof(float))
        status = {StatusCode::kCorrupt, "broadcast of tensor '" + tensor.name + "': " + std::to_string(bytes.size()) +
                                            " bytes came, " + std::to_string(tensor.elements * sizeof(float)) +
                                            " were expected"};
    if (status.is_ok() && tensor.on_device) return deliver_device_broadcast(action);
    if (status.is_ok()) {
        std::vector<float> values(tensor.elements);
        if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
        static_cast<void>(tensor.result->copy_exact(action.number, values));
    }
    complete_all(shm::CompletionKind::kBroadcast, {.tensor = action.tensor}, action.number, status);
}

void HostedJob::act(exchange::DeliverCheck& action, TimePoint) {
    complete_all(shm::CompletionKind::kCheckEqual, {}, action.number, action.status);
}

void HostedJob::act(exchange::EndJob& action, TimePoint now) {
    is_ended_ = true;
    ended_at_ = now;
    end_status_ = action.status;
    if (action.status.is_ok()) {
        surroundings_.log->info("job ended: " + left_text(), {.job = key().name});
        if (!members_.empty() && !left_open_) forget_state();
    } else {
        surroundings_.log->error("job ended: " + action.status.to_string(), {.job = key().name});
    }
    complete_all(shm::CompletionKind::kJobEnded, {}, 0, action.status);
}

}  // namespace gradsieve::daemon

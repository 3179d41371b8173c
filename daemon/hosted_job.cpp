#include "daemon/hosted_job.hpp"

#include "codec/philox.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace gradsieve::daemon {

namespace {

std::vector<exchange::NodeName> node_names(const Config& config) {
    std::vector<exchange::NodeName> names;
    for (const auto& node : config.nodes) names.push_back({node.name, node.endpoint()});
    if (names.empty()) names.push_back({"this node", "local"});
    return names;
}

exchange::JobTimes job_times(const Config& config) {
    exchange::JobTimes times;
    times.round_deadline = config.round_deadline;
    times.peer_timeout = config.peer_timeout;
    times.max_late = config.max_late;
    return times;
}

exchange::JobLimits job_limits(const Config& config) {
    exchange::JobLimits limits;
    limits.credit_bytes = config.credit_bytes;
    return limits;
}

std::vector<shm::TensorEntry> sorted_by_name(std::vector<shm::TensorEntry> tensors) {
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return tensors;
}

exchange::JobSpec spec_of(const shm::AttachRequest& request, std::span<const shm::TensorEntry> sorted,
                          const CodecChoice& choice) {
    exchange::JobSpec spec;
    spec.world_size = request.world_size;
    spec.non_finite_policy = static_cast<std::uint8_t>(request.non_finite);
    spec.codec = codec::canonical_text(choice.main, codec::Knobs::kBlank);
    for (std::size_t index = 0; index < sorted.size(); ++index) {
        const auto& down = choice.downs[index];
        auto rule = codec::canonical_text(choice.pipelines[index], codec::Knobs::kBlank);
        if (down) rule += "; averages: " + codec::canonical_text(*down, codec::Knobs::kBlank);
        const auto phases = down ? 2U : codec::phase_count(choice.pipelines[index]);
        spec.tensors.push_back({sorted[index].name, sorted[index].group, sorted[index].shape, std::move(rule),
                                static_cast<std::uint8_t>(phases), down.has_value()});
    }
    return spec;
}

}  // namespace

bool Session::complete(const shm::Completion& completion) {
    if (!memory || is_gone) return true;
    if (!memory->push(completion).is_ok()) return false;
    needs_ring = true;
    return true;
}

Status MemoryBudget::take(ByteCount bytes, std::string_view what) {
    const auto mebibytes = [](ByteCount count) { return std::to_string((count + (1U << 20U) - 1) >> 20U); };
    while (bytes <= limit_bytes && used_bytes > limit_bytes - bytes && make_room && make_room()) {}
    if (bytes > limit_bytes || used_bytes > limit_bytes - bytes)
        return {StatusCode::kResourceExhausted,
                std::string(what) + " needs " + mebibytes(bytes) + " MiB; " + mebibytes(used_bytes) + " of " +
                    mebibytes(limit_bytes) + " MiB are in use: raise daemon.memory_limit_mib, or end another job"};
    used_bytes += bytes;
    return {};
}

Result<std::unique_ptr<HostedJob>> HostedJob::make(const shm::AttachRequest& request,
                                                   const JobSurroundings& surroundings, TimePoint now) {
    const auto sorted = sorted_by_name(request.tensors);
    GRADSIEVE_ASSIGN(auto choice, choose_codecs(*surroundings.config, request.codec, sorted));
    auto spec = spec_of(request, sorted, choice);
    std::unique_ptr<HostedJob> job(new HostedJob(request, surroundings, std::move(spec), std::move(choice)));
    if (const auto status = job->lay_out(sorted); !status.is_ok()) {
        job->give_up_state(now);  // what was taken up is kept on
        return status;
    }
    return job;
}

HostedJob::HostedJob(const shm::AttachRequest& request, const JobSurroundings& surroundings, exchange::JobSpec spec,
                     CodecChoice choice)
    : surroundings_(surroundings),
      spec_(std::move(spec)),
      choice_(std::move(choice)),
      random_seed_(
          codec::rounding_seed(request.job_name, node_names(*surroundings.config)[surroundings.config->self].name)),
      selection_seed_(codec::selection_seed(request.job_name)),
      machine_({request.job_name, request.run_id}, surroundings.config->self, node_names(*surroundings.config),
               job_times(*surroundings.config), job_limits(*surroundings.config), surroundings.epoch_seed) {}

HostedJob::~HostedJob() { release_memory(); }

void HostedJob::release_memory() {
    if (trace_) forget_trace();
    for (auto& tensor : tensors_) {
        tensor.result.reset();
        tensor.phases.reset();
        tensor.shard.reset();
        tensor.held.reset();
    }
    release_gpu_state();
    if (state_ && state_->placement())
        give_back(surroundings_.gpus->ledger(), claims_of(*state_->placement(), parts_.ordinals));
    parts_ = {};
    state_.reset();
    results_.reset();
    surroundings_.budget->give_back(std::exchange(memory_bytes_, ByteCount{0}));
    surroundings_.budget->give_back(std::exchange(state_bytes_, ByteCount{0}));
}

Status HostedJob::lay_out(std::span<const shm::TensorEntry> sorted) {
    std::set<std::string> group_names;
    for (const auto& entry : sorted) group_names.insert(entry.group);
    for (const auto& name : group_names) groups_.push_back({.name = name});
    tensors_.reserve(sorted.size());
    std::vector<ElementCount> elements;
    for (std::size_t index = 0; index < sorted.size(); ++index) {
        const auto& entry = sorted[index];
        const auto group =
            static_cast<exchange::GroupNumber>(std::distance(group_names.begin(), group_names.find(entry.group)));
        HostedTensor tensor;
        tensor.number = static_cast<exchange::TensorNumber>(index);
        tensor.id = tensor_id(entry.name);
        tensor.name = entry.name;
        tensor.group = group;
        tensor.elements = entry.elements();
        tensor.on_device = entry.on_device;
        tensor.written = tensor.pipeline = choice_.pipelines[index];
        tensor.down = choice_.downs[index];
        tensor.codec_text = codec::canonical_text(tensor.pipeline, codec::Knobs::kKeep);
        groups_[group].tensors.push_back(tensor.number);
        groups_[group].elements += tensor.elements;
        elements.push_back(tensor.on_device ? 0 : tensor.elements);
        tensors_.push_back(std::move(tensor));
    }
    steering_.lay_out(tensors_, groups_, choice_.budget, *surroundings_.config);
    plain_.lay_out(tensors_);
    GRADSIEVE_TRY(take_signatures());
    GRADSIEVE_TRY(lay_out_scopes());
    GRADSIEVE_TRY(lay_out_phases());
    GRADSIEVE_TRY(lay_out_state());
    ByteCount result_bytes = 0;
    for (const auto count : elements) result_bytes += count * sizeof(float);
    GRADSIEVE_TRY(surroundings_.budget->take(result_bytes, "the job's result area"));
    memory_bytes_ += result_bytes;
    GRADSIEVE_ASSIGN(results_, shm::ResultArea::make("gradsieve-result:" + key().name, elements));
    for (auto& tensor : tensors_)
        if (!tensor.on_device) tensor.result.emplace(tensor.id, results_->tensor(tensor.number), tensor.elements);
    return {};
}

Status HostedJob::take_signatures() {
    ByteCount bytes = 0;
    const std::size_t nodes =
        std::max<std::size_t>(1, std::min<std::size_t>(surroundings_.config->nodes.size(), spec_.world_size));
    for (const auto& tensor : tensors_) {
        if (tensor.pipeline.measures_similarity) bytes += 2 * codec::kSignatureBytes;
        if (codec::has_reuse(tensor.pipeline)) bytes += codec::reuse_bytes(tensor.pipeline, tensor.elements, nodes);
    }
    GRADSIEVE_TRY(surroundings_.budget->take(bytes, "signatures, and payloads for steps that are skipped,"));
    memory_bytes_ += bytes;
    return {};
}

Status HostedJob::check_request(const Session& session, const shm::AttachRequest& request) const {
    if (is_ended_)
        return {StatusCode::kFailedPrecondition, "job '" + key().name + "' has ended: " + end_status_.text()};
    if (has_owner_ && session.who.uid != owner_ && session.who.uid != 0)
        return {StatusCode::kPermissionDenied, "job '" + key().name + "' belongs to uid " + std::to_string(owner_) +
                                                   ", you are " + session.user +
                                                   ": run all ranks of a job as one user"};
    const auto taken = sessions_.find(request.rank);
    if (taken != sessions_.end() && taken->second->has_detached)
        return {StatusCode::kBusy, "rank " + std::to_string(request.rank) + " of job '" + key().name +
                                       "' has detached from a run that still goes on elsewhere: all of its ranks must "
                                       "detach first; try again in a moment"};
    if (taken != sessions_.end())
        return {StatusCode::kAlreadyExists, "rank " + std::to_string(request.rank) + " of job '" + key().name +
                                                "' is held by pid " + std::to_string(taken->second->who.pid) + " of " +
                                                taken->second->user +
                                                ": give each process its own rank, or end that process"};
    return {};
}

Result<HostedJob::Attachment> HostedJob::attach(Session& session, const shm::AttachRequest& request, TimePoint now) {
    GRADSIEVE_TRY(check_request(session, request));
    const auto sorted = sorted_by_name(request.tensors);
    GRADSIEVE_ASSIGN(auto choice, choose_codecs(*surroundings_.config, request.codec, sorted));
    if (choice.text != choice_.text)
        return Status(StatusCode::kMismatch, "rank " + std::to_string(request.rank) + " asks for codec '" +
                                                 choice.text + "', the job's other local ranks for '" + choice_.text +
                                                 "': use one codec text on all ranks of a node");
    GRADSIEVE_TRY(check_places(sorted));
    GRADSIEVE_TRY(check_wishes(session, request.rank));
    GRADSIEVE_ASSIGN(const auto bytes, shm::session_bytes_bound(request.tensors));
    GRADSIEVE_TRY(surroundings_.budget->take(bytes, "the rank's gradient slabs"));
    auto memory = shm::DaemonSession::make("gradsieve-slab:" + key().name, request.tensors);
    auto status = memory.status();
    if (status.is_ok()) status = machine_.on_rank_attached(request.rank, spec_of(request, sorted, choice), now);
    if (!status.is_ok()) {
        surroundings_.budget->give_back(bytes);
        return status;
    }
    session.memory.emplace(std::move(*memory));
    session.memory_bytes = bytes;
    session.job = this;
    session.rank = request.rank;
    session.tensors = request.tensors;
    session.gpu_buffers.resize(request.tensors.size());
    session.is_handed_in.assign(request.tensors.size(), false);
    session.index_of_number.assign(tensors_.size(), 0);
    session.first_of_group.assign(groups_.size(), std::numeric_limits<std::uint32_t>::max());
    Attachment attachment;
    for (std::uint32_t index = 0; index < session.tensors.size(); ++index) {
        const auto place =
            std::lower_bound(tensors_.begin(), tensors_.end(), session.tensors[index].name,
                             [](const auto& tensor, const std::string& name) { return tensor.name < name; });
        session.number_of_index.push_back(place->number);
        session.index_of_number[place->number] = index;
        auto& first = session.first_of_group[place->group];
        first = std::min(first, index);
        attachment.reply.result_offsets.push_back(results_->offset_bytes(place->number));
    }
    if (!has_owner_) owner_ = session.who.uid;
    has_owner_ = true;
    sessions_[request.rank] = &session;
    attachment.reply.control_bytes = session.memory->control_bytes();
    attachment.reply.gradient_bytes = session.memory->gradient_bytes();
    attachment.reply.result_bytes = results_->size_bytes();
    attachment.descriptors = {session.memory->control_fd(), session.memory->gradient_fd(), results_->fd(),
                              session.doorbell->fd()};
    for (auto& tensor : tensors_) tensor.inputs.clear();  // filled again, in rank order, when the job starts
    return attachment;
}

void HostedJob::submit_average(Session& session, const shm::Submission& submission, TimePoint now) {
    const auto refuse = [&](const Status& status) {
        shm::Completion completion;
        completion.kind = shm::CompletionKind::kTensor;
        completion.code = status.code();
        completion.index = submission.tensor_index;
        completion.step = submission.step;
        completion.set_text(status.text());
        complete(session, completion);
    };
    auto& tensor = tensors_[session.number_of_index[submission.tensor_index]];
    const auto& entry = session.tensors[submission.tensor_index];
    if (submission.sample_count < 1 || submission.sample_count > entry.samples_max)
        return refuse({StatusCode::kInvalidArgument,
                       "tensor '" + tensor.name + "': sample_count " + std::to_string(submission.sample_count) +
                           ": allowed is 1 to samples_max = " + std::to_string(entry.samples_max)});
    if (!std::isfinite(submission.scale) || submission.scale <= 0)
        return refuse({StatusCode::kInvalidArgument, "tensor '" + tensor.name + "': scale " +
                                                         std::to_string(submission.scale) +
                                                         ": allowed is a finite number above 0"});
    if (tensor.on_device && !session.gpu_buffers[submission.tensor_index])
        return refuse({StatusCode::kFailedPrecondition, "tensor '" + tensor.name +
                                                            "': registered on a device, but no memory is bound: call "
                                                            "bind_device before submit"});
    if (const auto status = machine_.on_submitted(session.rank, tensor.number, submission.step, now); !status.is_ok()) {
        // The step may have ended in this very turn: who has all answers of a step may hand in the next one, so its end
        // is told first.
        carry_out_all(now);
        return refuse(status);
    }
    session.is_handed_in[submission.tensor_index] = true;
    if (trace_) trace_->on_hand_in(tensor.number, submission.step, session.rank);
    for (auto& input : tensor.inputs)
        if (input.session == &session)
            input = {&session, submission.tensor_index, submission.sample_count, submission.batch_samples,
                     submission.scale};
    if (tensor.scope != nullptr) tensor.scope->handed_in_at[session.rank] = now;
    auto& group = groups_[tensor.group];
    if (!group.opened) group.opened = now;
}

void HostedJob::on_submission(Session& session, const shm::Submission& submission, TimePoint now) {
    if (is_ended_) return;  // the session has been told
    Status status;
    auto kind = shm::CompletionKind::kJobEnded;
    const bool names_tensor =
        submission.kind == shm::SubmissionKind::kAverage || submission.kind == shm::SubmissionKind::kBroadcast;
    if (names_tensor && submission.tensor_index >= session.tensors.size()) {
        status = {StatusCode::kInvalidArgument, "tensor index " + std::to_string(submission.tensor_index) +
                                                    ": the session has " + std::to_string(session.tensors.size()) +
                                                    " tensors"};
        return on_session_gone(session, status.text(), now);
    }
    switch (submission.kind) {
        case shm::SubmissionKind::kAverage: return submit_average(session, submission, now);
        case shm::SubmissionKind::kBroadcast:
            kind = shm::CompletionKind::kBroadcast;
            status = machine_.on_broadcast_requested(session.rank, session.number_of_index[submission.tensor_index],
                                                     submission.step, submission.root, now);
            break;
        case shm::SubmissionKind::kCheckEqual:
            kind = shm::CompletionKind::kCheckEqual;
            status = machine_.on_check_requested(session.rank, submission.step, submission.digest, now);
            break;
        case shm::SubmissionKind::kDetach:
            session.has_detached = true;
            machine_.on_rank_left(session.rank, true, "detached", now);
            return;
    }
    if (status.is_ok()) return;
    shm::Completion completion;
    completion.kind = kind;
    completion.code = status.code();
    completion.index = submission.tensor_index;
    completion.step = submission.step;
    completion.set_text(status.text());
    complete(session, completion);
}

void HostedJob::on_session_gone(Session& session, const std::string& text, TimePoint now) {
    if (session.is_gone) return;
    session.is_gone = true;
    if (is_ended_ || session.has_detached) return;
    surroundings_.log->warning("rank " + std::to_string(session.rank) + " is gone: " + text, {.job = key().name});
    machine_.on_rank_left(session.rank, false, text, now);
}

void HostedJob::complete(Session& session, const shm::Completion& completion) {
    if (!session.complete(completion))
        surroundings_.log->warning("rank " + std::to_string(session.rank) + " does not read its completions: pid " +
                                       std::to_string(session.who.pid),
                                   {.job = key().name});
}

void HostedJob::forget(Session& session) {
    release(std::move(session.gpu_buffers));
    sessions_.erase(session.rank);
    surroundings_.budget->give_back(session.memory_bytes);
}

void HostedJob::on_frame(const transport::InFrame& frame, TimePoint now) {
    if (trace_) trace_->set_arrival(frame.arrived);
    if (const auto bytes = exchange::credited_bytes(frame.header.type, frame.body.bytes()))
        meter_.on_answered(frame.from, *bytes, now);
    machine_.on_frame(frame.from, frame.header.type, frame.header.epoch, frame.header.step, frame.body, now);
}

void HostedJob::on_peer_event(const transport::PeerEvent& event, TimePoint now) {
    if (event.state == transport::PeerState::kConnecting) return;
    const auto state = event.state == transport::PeerState::kUp       ? exchange::LinkState::kUp
                       : event.state == transport::PeerState::kSilent ? exchange::LinkState::kSilent
                                                                      : exchange::LinkState::kClosed;
    if (state != exchange::LinkState::kUp) meter_.forget(event.peer);
    machine_.on_link(event.peer, state, event.instance, event.text, now);
}

void HostedJob::on_daemon_stopping(TimePoint now) {
    for (auto& [rank, session] : sessions_)
        if (!session->has_detached && !is_ended_)
            machine_.on_rank_left(rank, false, "gradsieved on this node is stopping", now);
}

void HostedJob::carry_out_all(TimePoint now) {
    for (auto actions = machine_.take_actions(); !actions.empty(); actions = machine_.take_actions())
        for (auto& action : actions) carry_out(action, now);
}

void HostedJob::run(TimePoint now) {
    retry_bind(now);
    encode_deferred(now);
    for (bool has_flushed = false;;) {
        auto actions = machine_.take_actions();
        if (actions.empty()) {
            if (has_flushed) break;
            machine_.flush();
            has_flushed = true;
            continue;
        }
        has_flushed = false;
        for (auto& action : actions) carry_out(action, now);
    }
    settle_held_binds();
    if (trace_) advance_trace(now);
}

}  // namespace gradsieve::daemon

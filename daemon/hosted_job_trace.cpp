// What a job records of its steps while somebody wants to see where their time goes. Nothing of this runs otherwise.
#include "daemon/hosted_job.hpp"

namespace gradsieve::daemon {

namespace {

std::string list_of(const std::vector<Rank>& ranks) {
    std::string text;
    for (const auto rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
    return text;
}

}  // namespace

TraceExtent HostedJob::trace_extent() const {
    TraceExtent extent;
    for (const auto& tensor : tensors_) {
        extent.group_of.push_back(tensor.group);
        extent.elements.push_back(tensor.elements);
        if (tensor.down) extent.second_phases.push_back(tensor.elements);
        if (tensor.phases) extent.second_phases.push_back(codec::phase_elements(tensor.pipeline, tensor.elements, 1));
    }
    extent.groups = groups_.size();
    extent.local_ranks = sessions_.size();
    extent.peers = members_.size() - 1;
    return extent;
}

void HostedJob::on_trace_request(std::uint64_t session_id, const shm::TraceRequest& request, TimePoint now) {
    const auto refuse = [&](Status status) {
        surroundings_.reply_trace(session_id, {.number = request.number, .status = std::move(status)});
    };
    if (trace_)
        return refuse({StatusCode::kBusy, "job '" + key().name +
                                              "' is being traced: allowed is one trace at a time; "
                                              "wait for its end, then ask again"});
    if (members_.empty() || is_ended_)
        return refuse({StatusCode::kFailedPrecondition,
                       "job '" + key().name +
                           "' does not run: needed are steps, which it has once all of its ranks "
                           "have attached; gradsieve status tells which are missing"});
    const auto extent = trace_extent();
    const auto capacity = extent.capacity(request.steps);
    if (!capacity.is_ok()) return refuse(capacity.error().with_context("job '" + key().name + "'"));
    const ByteCount bytes = *capacity * sizeof(shm::TraceEvent);
    if (auto status = surroundings_.budget->take(bytes, "the trace"); !status.is_ok()) return refuse(std::move(status));
    memory_bytes_ += bytes;
    trace_bytes_ = bytes;
    // A step that is under way would show its end alone.
    std::vector<Step> first_steps(groups_.size(), 1);
    for (exchange::GroupNumber group = 0; group < groups_.size(); ++group)
        first_steps[group] = groups_[group].ended + 1;
    for (const auto& round : machine_.snapshot(now).open_rounds) first_steps[round.group] = round.step + 1;
    trace_ = std::make_unique<JobTrace>(JobTrace::Asked{.session_id = session_id,
                                                        .number = request.number,
                                                        .steps = request.steps,
                                                        .deadline = now + std::chrono::milliseconds(request.timeout_ms),
                                                        .timeout = std::chrono::milliseconds(request.timeout_ms)},
                                        extent, std::move(first_steps), *capacity, trace_clock_);
    machine_.set_watcher(trace_.get());
    surroundings_.log->info("a trace of " + std::to_string(request.steps) + " steps begins", {.job = key().name});
}

void HostedJob::drop_trace(std::uint64_t session_id) {
    if (!trace_ || trace_->asked().session_id != session_id) return;
    surroundings_.log->info("the trace is given up: who asked for it is gone", {.job = key().name});
    forget_trace();
}

void HostedJob::forget_trace() {
    machine_.set_watcher(nullptr);
    trace_.reset();
    memory_bytes_ -= trace_bytes_;
    surroundings_.budget->give_back(std::exchange(trace_bytes_, ByteCount{0}));
}

/// What the steps that did not come wait for.
Status HostedJob::missed_steps(TimePoint now) const {
    const auto& asked = trace_->asked();
    auto text = "job '" + key().name + "': " + std::to_string(trace_->steps_ended()) + " of " +
                std::to_string(asked.steps) + " steps ended within " +
                std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(asked.timeout).count()) + " ms; ";
    const auto rounds = machine_.snapshot(now).open_rounds;
    if (rounds.empty()) text += "no rank hands anything in";
    for (std::size_t place = 0; place < rounds.size(); ++place) {
        const auto& round = rounds[place];
        text += (place == 0 ? "step " : ", step ") + std::to_string(round.step) + " of group '" +
                groups_[round.group].name + "' waits for ";
        if (!round.ranks_not_submitted.empty()) {
            text += "ranks " + list_of(round.ranks_not_submitted);
        } else if (!round.peers_waited_for.empty()) {
            std::string nodes;
            for (const auto peer : round.peers_waited_for)
                nodes += (nodes.empty() ? "" : ", ") + surroundings_.config->nodes[peer].name;
            text += "payloads of " + nodes;
        } else {
            text += "coding";
        }
    }
    return {StatusCode::kTimeout, text + ": look at gradsieve status, or wait longer with --timeout"};
}

void HostedJob::advance_trace(TimePoint now) {
    if (trace_->is_complete(now)) return end_trace({});
    if (is_ended_)
        return end_trace({StatusCode::kFailedPrecondition,
                          "job '" + key().name + "' ended after " + std::to_string(trace_->steps_ended()) + " of " +
                              std::to_string(trace_->asked().steps) + " steps" +
                              (end_status_.is_ok() ? ": its ranks have detached" : ": " + end_status_.text())});
    if (now >= trace_->asked().deadline) return end_trace(missed_steps(now));
}

void HostedJob::end_trace(const Status& status) {
    shm::TraceReply reply;
    reply.number = trace_->asked().number;
    reply.status = status;
    const auto& nodes = surroundings_.config->nodes;
    reply.node = nodes.empty() ? "this node" : nodes[surroundings_.config->self].name;
    reply.codec = choice_.text;
    for (const auto& group : groups_) reply.groups.push_back(group.name);
    for (const auto& tensor : tensors_)
        reply.tensors.push_back({.name = tensor.name, .group = tensor.group, .elements = tensor.elements});
    for (const auto& member : members_)
        if (member.peer == surroundings_.config->self)
            reply.ranks = member.ranks;
        else
            reply.peers.push_back({.peer = member.peer, .name = nodes[member.peer].name});
    trace_->take_into(reply);
    const auto text = "the trace ends with " + std::to_string(reply.steps_ended) + " steps and " +
                      std::to_string(reply.events.size()) + " events";
    const auto session_id = trace_->asked().session_id;
    forget_trace();
    if (status.is_ok())
        surroundings_.log->info(text, {.job = key().name});
    else
        surroundings_.log->warning(text + ": " + status.text(), {.job = key().name});
    surroundings_.reply_trace(session_id, reply);
}

void HostedJob::on_frame_sent(std::uint64_t number, TimePoint at) {
    if (trace_) trace_->on_frame_sent(number, at);
}

void HostedJob::trace_task(const CodecTask& task) {
    if (task.kind == CodecTask::Kind::kDecode)
        return trace_->on_decoded(task.tensor->number, task.step, task.began, task.ended);
    ByteCount bytes = 0;
    if (task.encoded && task.encoded->is_ok())
        for (const auto& chunk : (*task.encoded)->chunks) bytes += chunk.bytes.size();
    trace_->on_encoded(task.tensor->number, task.step, task.began, task.ended, bytes);
}

}  // namespace gradsieve::daemon

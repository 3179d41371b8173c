// Who asks where the time of a job's steps goes: passed on to the job, and its answer back. Only of jobs that are the
// caller's own.
#include "daemon/conductor.hpp"

namespace gradsieve::daemon {

void Conductor::on_trace_message(Session& session, const shm::LocalMessage& message, TimePoint now) {
    const auto request = shm::parse_trace_request(message.bytes);
    if (!request.is_ok()) {
        note_error("pid " + std::to_string(session.who.pid) + ": " + request.error().text(), now);
        return reply_with_trace(session.id, {.number = 0, .status = request.error()});
    }
    const auto refuse = [&](StatusCode code, const std::string& why) {
        const auto job = "job '" + request->job_name + "', run '" + request->run_id + "'";
        reply_with_trace(session.id, {.number = request->number, .status = {code, job + why}});
    };
    const auto place = jobs_.find(exchange::job_hash({request->job_name, request->run_id}));
    if (place == jobs_.end() || place->second->is_ended())
        return refuse(StatusCode::kNotFound,
                      ": it does not run here: a trace is made of a job that runs; gradsieve status names those");
    if (!session.may_touch(place->second->owner()))
        return refuse(StatusCode::kPermissionDenied,
                      " is another user's, you are " + session.user + ": ask as that user, or as root");
    place->second->on_trace_request(session.id, *request, now);
}

void Conductor::reply_with_trace(std::uint64_t session_id, const shm::TraceReply& reply) {
    const auto place = sessions_.find(session_id);
    if (place == sessions_.end() || place->second->is_gone) return;
    if (!reply.status.is_ok() && reply.events.empty()) log_.warning("trace refused: " + reply.status.text(), {});
    auto& connection = place->second->connection;
    const auto sent = connection.send(shm::build_trace_reply(reply), {});
    if (sent.is_ok() || sent.code() == StatusCode::kUnavailable) return;  // a caller may be gone
    log_.warning("trace: " + sent.text(), {});
    static_cast<void>(connection.send(
        shm::build_trace_reply({.number = reply.number, .status = sent.with_context("the trace cannot be sent")}), {}));
}

void Conductor::drain_sent_frames() {
    if (!network_) return;
    while (const auto sent = network_->take_sent())
        if (const auto place = jobs_.find(sent->mark.job_hash); place != jobs_.end())
            place->second->on_frame_sent(sent->mark.number, sent->at);
}

}  // namespace gradsieve::daemon

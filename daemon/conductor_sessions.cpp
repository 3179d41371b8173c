// Sessions come and go: callers accepted and asked who they are, attached to their job, drained, and forgotten.
#include "daemon/conductor.hpp"
#include "daemon/epoll_tag.hpp"
#include "daemon/host_only.hpp"
#include "shm/message_head.hpp"

#include <poll.h>
#include <pwd.h>
#include <unistd.h>

namespace gradsieve::daemon {

namespace {

constexpr std::size_t kSessionsLimit = 4096;
/// An ended job answers peers that long, in case they missed how it ended.
constexpr Duration kAnswersFor = std::chrono::seconds(5);

std::string user_name(uid_t uid) {
    struct passwd entry {};
    struct passwd* found = nullptr;
    std::vector<char> buffer(16 * 1024);
    if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) return found->pw_name;
    return "uid " + std::to_string(uid);
}

/// Whether the gradient is there: on the host always, on a GPU once its stream wrote the step into the ready word.
bool is_made(const Session& session, const shm::Submission& submission) {
    if (submission.kind != shm::SubmissionKind::kAverage || submission.tensor_index >= session.tensors.size() ||
        !session.tensors[submission.tensor_index].on_device)
        return true;
    return session.memory->ready_word(submission.tensor_index) == static_cast<std::uint32_t>(submission.step);
}

bool is_readable(int fd) {
    struct pollfd entry {
        fd, POLLIN, 0
    };
    return ::poll(&entry, 1, 0) == 1;
}

}  // namespace

bool Conductor::accept_sessions(TimePoint now) {
    bool has_any = false;
    while (!is_stopping_) {
        auto connection = listener_.accept();
        if (!connection.is_ok()) {
            if (connection.error().code() != StatusCode::kTimeout)
                note_error("accept: " + connection.error().text(), now);
            break;
        }
        has_any = true;
        const auto who = connection->peer_credentials();
        if (!who.is_ok() || sessions_.size() >= kSessionsLimit) {
            note_error("a caller was turned away: " + (who.is_ok() ? "too many sessions" : who.error().text()), now);
            continue;
        }
        auto process = shm::open_process(who->pid);
        if (!process.is_ok()) continue;  // gone already
        auto doorbell = shm::Doorbell::make();
        if (!doorbell.is_ok()) {
            note_error("a caller was turned away: " + doorbell.error().text(), now);
            continue;
        }
        auto session = std::make_unique<Session>();
        session->id = next_session_id_++;
        session->connection = std::move(*connection);
        session->who = *who;
        session->user = user_name(who->uid);
        session->process = std::move(*process);
        session->doorbell = std::move(*doorbell);
        watch(session->connection.fd(), make_tag(kSocketTag, session->id));
        watch(session->process.get(), make_tag(kProcessTag, session->id));
        watch(session->doorbell->fd(), make_tag(kBellTag, session->id));
        sessions_[session->id] = std::move(session);
    }
    return has_any;
}

void Conductor::on_socket_ready(Session& session, TimePoint now) {
    auto message = session.connection.receive(TimePoint{});
    if (!message.is_ok()) {
        if (message.error().code() == StatusCode::kTimeout) return;
        if (message.error().code() != StatusCode::kUnavailable)
            note_error("pid " + std::to_string(session.who.pid) + ": " + message.error().text(), now);
        // Whatever it handed in before it closed still counts, a detach above all.
        if (session.memory) drain_session(session, now);
        const bool is_dead = is_readable(session.process.get());
        const auto pid = "pid " + std::to_string(session.who.pid) + " of " + session.user;
        const auto text = is_dead ? "its process (" + pid + ") died"
                                  : "its process (" + pid + ") closed the connection without detaching";
        if (session.job != nullptr) session.job->on_session_gone(session, text, now);
        session.is_gone = true;
        return;
    }
    if (session.job != nullptr) return on_bind_message(session, std::move(*message), now);
    if (shm::peek_message_type(message->bytes) == shm::MessageType::kStateRequest)
        return on_state_message(session, std::move(*message), now);
    if (shm::peek_message_type(message->bytes) == shm::MessageType::kTraceRequest)
        return on_trace_message(session, *message, now);
    shm::AttachReply reply;
    std::vector<int> descriptors;
    auto request = shm::parse_attach_request(message->bytes);
    if (request.is_ok()) {
        auto host_only = find_host_only(config_, *request);
        auto attachment = host_only.refusal.is_ok() ? attach(session, *request, now)
                                                    : Result<HostedJob::Attachment>(host_only.refusal);
        reply.host_only = std::move(host_only.tensors);
        if (attachment.is_ok()) {
            reply = attachment->reply;
            descriptors = attachment->descriptors;
            log_.info("rank " + std::to_string(request->rank) + " of " + std::to_string(request->world_size) +
                          " attached: pid " + std::to_string(session.who.pid) + " of " + session.user,
                      {.job = request->job_name});
        } else {
            reply.status = attachment.error();
        }
    } else {
        reply.status = request.error();
    }
    // Clients ask again and again while the last run of their job leaves, and once more for tensors to be staged.
    if (reply.status.code() == StatusCode::kBusy || !reply.host_only.empty())
        log_.debug("attach put off: " + reply.status.text(), {.job = request->job_name});
    else if (!reply.status.is_ok())
        log_.warning("attach refused: " + reply.status.text(),
                     {.job = request.is_ok() ? std::string_view(request->job_name) : std::string_view()});
    if (const auto sent = session.connection.send(shm::build_attach_reply(reply), descriptors); !sent.is_ok())
        note_error("attach reply to pid " + std::to_string(session.who.pid) + ": " + sent.text(), now);
}

void Conductor::on_bind_message(Session& session, shm::LocalMessage message, TimePoint now) {
    const auto request = shm::parse_bind_request(message.bytes);
    if (request.is_ok()) return session.job->on_bind_request(session, *request, std::move(message.descriptors));
    const auto text = "its process (pid " + std::to_string(session.who.pid) +
                      ") sent what is no bind request: " + request.error().text();
    note_error(text, now);
    session.job->on_session_gone(session, text, now);
}

Status Conductor::check_second_run(const shm::AttachRequest& request, TimePoint now) const {
    for (const auto& [hash, job] : jobs_) {
        if (job->is_ended() || job->is_leaving(now) || job->key().name != request.job_name ||
            job->key().run_id == request.run_id)
            continue;
        std::string holder;
        if (!job->sessions().empty()) {
            const auto& session = *job->sessions().begin()->second;
            holder = " (rank " + std::to_string(session.rank) + " is pid " + std::to_string(session.who.pid) + " of " +
                     session.user + ")";
        }
        return {StatusCode::kAlreadyExists, "job '" + request.job_name + "' already runs here with run id '" +
                                                job->key().run_id + "'" + holder + ", you asked for run id '" +
                                                request.run_id + "': end that run, or choose another job name"};
    }
    return {};
}

Status Conductor::check_kept_owner(const Session& session, const exchange::JobKey& key) const {
    const auto owner = kept_states_.owner_of(key);
    if (!owner || *owner == session.who.uid || session.who.uid == 0) return {};
    return {StatusCode::kPermissionDenied, "job '" + key.name + "', run '" + key.run_id + "': its state is kept for " +
                                               user_name(*owner) + ", you are " + session.user +
                                               ": run it as that user, or choose another run id"};
}

Status Conductor::end_life(HostedJob& job, TimePoint now) {
    if (!job.can_forget_sessions())
        return {StatusCode::kBusy, "job '" + job.key().name +
                                       "': the last run's codec work is still going on: wait for its end; try again in "
                                       "a moment"};
    if (!job.is_retired()) retire(job, now);
    job.give_up_state(now);
    return {};
}

Result<HostedJob::Attachment> Conductor::attach(Session& session, const shm::AttachRequest& request, TimePoint now) {
    for (const auto& tensor : request.tensors)
        if (tensor.on_device)
            if (const auto devices = gpus_.list(); !devices.is_ok())
                return devices.status().with_context("tensor '" + tensor.name + "' is on a device");
    GRADSIEVE_TRY(check_second_run(request, now));
    const exchange::JobKey key{request.job_name, request.run_id};
    const auto hash = exchange::job_hash(key);
    auto place = jobs_.find(hash);
    if (place != jobs_.end() && place->second->is_ended()) {  // a new life of the same job
        GRADSIEVE_TRY(end_life(*place->second, now));
        leaving_jobs_.push_back(std::move(place->second));
        jobs_.erase(place);
        place = jobs_.end();
    }
    const bool is_new = place == jobs_.end();
    if (is_new) {
        GRADSIEVE_TRY(check_kept_owner(session, key));
        if (kept_states_.is_checking(key))
            return Status(StatusCode::kBusy, "job '" + key.name +
                                                 "': its kept state on GPUs is being looked at: wait for its end; try "
                                                 "again in a moment");
        JobSurroundings surroundings{
            &config_,
            &pool_,
            &gpus_,
            network_.get(),
            &workspace_,
            &budget_,
            &log_,
            mix64(static_cast<std::uint64_t>(now.time_since_epoch().count()) ^ hash ^
                  static_cast<std::uint64_t>(::getpid())),
            &kept_states_,
            session.who.uid,
            snapshots_,
            session.wishes,
            read_resume_choice(config_.state_directory, key),
            [this](std::uint64_t id, const shm::StateReply& reply) { reply_to(id, reply); },
            [this](std::uint64_t id, const shm::TraceReply& reply) { reply_with_trace(id, reply); }};
        GRADSIEVE_ASSIGN(auto job, HostedJob::make(request, surroundings, now));
        place = jobs_.emplace(hash, std::move(job)).first;
        for (PeerIndex peer = 0; peer < peers_.size(); ++peer)
            if (peer != config_.self && peers_[peer].state != transport::PeerState::kConnecting)
                place->second->on_peer_event({peer, peers_[peer].state, peers_[peer].instance, peers_[peer].text}, now);
    }
    auto attachment = place->second->attach(session, request, now);
    if (!attachment.is_ok() && is_new) {
        place->second->give_up_state(now);
        jobs_.erase(place);
    }
    return attachment;
}

/// Next hand-in of the session that can be acted on: one from a GPU waits until its stream has come that far.
Result<bool> Conductor::take_submission(Session& session, shm::Submission& ret_submission) {
    if (!session.held) {
        GRADSIEVE_ASSIGN(const bool has_one, session.memory->try_pop(ret_submission));
        if (!has_one || is_made(session, ret_submission)) return has_one;
        session.held = ret_submission;
        return false;
    }
    if (!is_made(session, *session.held)) return false;
    ret_submission = *session.held;
    session.held.reset();
    return true;
}

bool Conductor::drain_session(Session& session, TimePoint now) {
    bool has_any = false;
    shm::Submission submission;
    while (session.memory && !session.is_gone) {
        const auto taken = take_submission(session, submission);
        if (!taken.is_ok()) {
            note_error(
                "pid " + std::to_string(session.who.pid) + " wrote nonsense into its ring: " + taken.error().text(),
                now);
            session.job->on_session_gone(
                session,
                "its process (pid " + std::to_string(session.who.pid) + ") broke its ring: " + taken.error().text(),
                now);
            return true;
        }
        if (!*taken) break;
        has_any = true;
        if (!is_stopping_) session.job->on_submission(session, submission, now);
    }
    return has_any;
}

void Conductor::remove_gone(TimePoint now) {
    for (auto place = sessions_.begin(); place != sessions_.end();) {
        auto& session = *place->second;
        if (!session.is_gone || (session.job != nullptr && !session.job->can_forget_sessions())) {
            ++place;
            continue;
        }
        for (auto& [hash, job] : jobs_) job->drop_trace(session.id);
        if (session.job != nullptr) session.job->forget(session);
        place = sessions_.erase(place);
    }
    std::erase_if(jobs_, [&](auto& item) {
        auto& job = *item.second;
        if (!job.is_removable()) return false;
        job.give_up_state(now);
        job.release_memory();
        return !job.is_ended() || now >= job.ended_at() + kAnswersFor;
    });
    std::erase_if(leaving_jobs_, [](const auto& job) { return job->is_removable(); });
}

}  // namespace gradsieve::daemon

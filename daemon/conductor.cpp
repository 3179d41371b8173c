#include "daemon/conductor.hpp"

#include "daemon/status_document.hpp"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <pwd.h>
#include <sys/epoll.h>
#include <unistd.h>

namespace gradsieve::daemon {

namespace {

constexpr Duration kStatusEvery = std::chrono::milliseconds(250);
constexpr Duration kTimersEvery = std::chrono::milliseconds(10);
constexpr std::size_t kEndedJobsKept = 16;
constexpr std::size_t kErrorsKept = 32;
constexpr std::size_t kSessionsLimit = 4096;

// epoll tags: what kind of descriptor, and whose
constexpr std::uint64_t kListenerTag = 1;
constexpr std::uint64_t kDoorbellTag = 2;
constexpr std::uint64_t kSocketTag = 3;
constexpr std::uint64_t kProcessTag = 4;
constexpr std::uint64_t kBellTag = 5;
constexpr std::uint64_t make_tag(std::uint64_t kind, std::uint64_t id) { return kind << 56U | id; }

std::string user_name(uid_t uid) {
    struct passwd entry {};
    struct passwd* found = nullptr;
    std::vector<char> buffer(16 * 1024);
    if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) return found->pw_name;
    return "uid " + std::to_string(uid);
}

/// 0 in the configuration means half of the RAM.
ByteCount memory_limit(const Config& config) {
    if (config.memory_limit_bytes > 0) return config.memory_limit_bytes;
    return static_cast<ByteCount>(::sysconf(_SC_PHYS_PAGES)) * static_cast<ByteCount>(::sysconf(_SC_PAGESIZE)) / 2;
}

bool is_readable(int fd) {
    struct pollfd entry {fd, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
}

}  // namespace

Conductor::Conductor(Config config, shm::LocalListener& listener, shm::Doorbell& doorbell, WakeFlag& wake, CodecPool& pool,
                     std::unique_ptr<NetworkThread> network, shm::StatusPageWriter& status_page, Log& log)
    : listener_(listener),
      doorbell_(doorbell),
      wake_(wake),
      pool_(pool),
      status_page_(status_page),
      log_(log),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      config_(std::move(config)),
      network_(std::move(network)),
      peers_(config_.nodes.size()),
      started_(SteadyClock().now()) {
    budget_.limit_bytes = memory_limit(config_);
    GRADSIEVE_CHECK(epoll_.is_open());
    watch(listener_.fd(), make_tag(kListenerTag, 0));
    watch(doorbell_.fd(), make_tag(kDoorbellTag, 0));
}

Conductor::~Conductor() = default;

void Conductor::watch(int fd, std::uint64_t tag) {
    struct epoll_event event {};
    event.events = EPOLLIN;
    event.data.u64 = tag;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        log_.error("epoll refuses a descriptor: errno " + std::to_string(errno) + ": raise fs.epoll.max_user_watches", {});
}

bool Conductor::accept_sessions(TimePoint now) {
    bool has_any = false;
    while (!is_stopping_) {
        auto connection = listener_.accept();
        if (!connection.is_ok()) {
            if (connection.error().code() != StatusCode::kTimeout) note_error("accept: " + connection.error().text(), now);
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
        const auto text = is_dead ? "its process (" + pid + ") died" : "its process (" + pid + ") closed the connection without detaching";
        if (session.job != nullptr) session.job->on_session_gone(session, text, now);
        session.is_gone = true;
        return;
    }
    if (session.job != nullptr) return note_error("pid " + std::to_string(session.who.pid) + " attached twice on one connection", now);
    shm::AttachReply reply;
    std::vector<int> descriptors;
    auto request = shm::parse_attach_request(message->bytes);
    if (request.is_ok()) {
        auto attachment = attach(session, *request, now);
        if (attachment.is_ok()) {
            reply = attachment->reply;
            descriptors = attachment->descriptors;
            log_.info("rank " + std::to_string(request->rank) + " of " + std::to_string(request->world_size) + " attached: pid " +
                         std::to_string(session.who.pid) + " of " + session.user,
                     {.job = request->job_name});
        } else {
            reply.status = attachment.error();
        }
    } else {
        reply.status = request.error();
    }
    if (!reply.status.is_ok()) log_.warning("attach refused: " + reply.status.text(), {});
    if (const auto sent = session.connection.send(shm::build_attach_reply(reply), descriptors); !sent.is_ok())
        note_error("attach reply to pid " + std::to_string(session.who.pid) + ": " + sent.text(), now);
}

Status Conductor::check_second_run(const shm::AttachRequest& request) const {
    for (const auto& [hash, job] : jobs_) {
        if (job->is_ended() || job->key().name != request.job_name || job->key().run_id == request.run_id) continue;
        std::string holder;
        if (!job->sessions().empty()) {
            const auto& session = *job->sessions().begin()->second;
            holder = " (rank " + std::to_string(session.rank) + " is pid " + std::to_string(session.who.pid) + " of " + session.user + ")";
        }
        return {StatusCode::kAlreadyExists, "job '" + request.job_name + "' already runs here with run id '" + job->key().run_id + "'" + holder +
                                                ", you asked for run id '" + request.run_id +
                                                "': end that run, or choose another job name"};
    }
    return {};
}

Result<HostedJob::Attachment> Conductor::attach(Session& session, const shm::AttachRequest& request, TimePoint now) {
    GRADSIEVE_TRY(check_second_run(request));
    const auto hash = exchange::job_hash({request.job_name, request.run_id});
    auto place = jobs_.find(hash);
    if (place != jobs_.end() && place->second->is_ended()) {  // a new life of the same job
        leaving_jobs_.push_back(std::move(place->second));
        jobs_.erase(place);
        place = jobs_.end();
    }
    const bool is_new = place == jobs_.end();
    if (is_new) {
        JobSurroundings surroundings{&config_, &pool_, network_.get(), &workspace_, &budget_, &log_,
                                     mix64(static_cast<std::uint64_t>(now.time_since_epoch().count()) ^ hash ^ static_cast<std::uint64_t>(::getpid()))};
        GRADSIEVE_ASSIGN(auto job, HostedJob::make(request, surroundings, now));
        place = jobs_.emplace(hash, std::move(job)).first;
        for (PeerIndex peer = 0; peer < peers_.size(); ++peer)
            if (peer != config_.self && peers_[peer].state != transport::PeerState::kConnecting)
                place->second->on_peer_event({peer, peers_[peer].state, peers_[peer].instance, peers_[peer].text}, now);
    }
    auto attachment = place->second->attach(session, request, now);
    if (!attachment.is_ok() && is_new) jobs_.erase(place);
    return attachment;
}

bool Conductor::drain_network(TimePoint now) {
    if (!network_) return false;
    inbox_.clear();
    network_->take_inbox(inbox_);
    for (const auto& event : inbox_.events) {
        peers_[event.peer] = {event.state, event.instance, event.text};
        const auto line = config_.nodes[event.peer].name + " is " + std::string(transport::peer_state_name(event.state)) +
                          (event.text.empty() ? "" : ": " + event.text);
        if (event.state == transport::PeerState::kUp) log_.info(line, {.peer = config_.nodes[event.peer].name});
        else log_.warning(line, {.peer = config_.nodes[event.peer].name});
        for (auto& [hash, job] : jobs_) job->on_peer_event(event, now);
    }
    for (const auto& frame : inbox_.frames) {
        const auto hash = exchange::job_of_frame(frame.body.bytes());
        const auto place = hash ? jobs_.find(*hash) : jobs_.end();
        if (place != jobs_.end()) place->second->on_frame(frame, now);
    }
    return !inbox_.events.empty() || !inbox_.frames.empty();
}

bool Conductor::drain_codec(TimePoint now) {
    auto finished = pool_.take_done();
    for (auto& task : finished) {
        const auto place = jobs_.find(task->job_hash);
        // The hash may by now name a new life of the job: the tensor's address tells whose task it is.
        const auto is_owner = [&](const HostedJob& job) {
            return !job.tensors().empty() && task->tensor >= job.tensors().data() && task->tensor < job.tensors().data() + job.tensors().size();
        };
        if (place != jobs_.end() && is_owner(*place->second)) {
            place->second->on_task_done(std::move(task), now);
            continue;
        }
        for (auto& job : leaving_jobs_)
            if (task && is_owner(*job)) job->on_task_done(std::move(task), now);
    }
    return !finished.empty();
}

bool Conductor::drain_session(Session& session, TimePoint now) {
    bool has_any = false;
    shm::Submission submission;
    while (session.memory && !session.is_gone) {
        const auto popped = session.memory->try_pop(submission);
        if (!popped.is_ok()) {
            note_error("pid " + std::to_string(session.who.pid) + " wrote nonsense into its ring: " + popped.error().text(), now);
            session.job->on_session_gone(session, "its process (pid " + std::to_string(session.who.pid) + ") broke its ring: " + popped.error().text(), now);
            return true;
        }
        if (!*popped) break;
        has_any = true;
        if (!is_stopping_) session.job->on_submission(session, submission, now);
    }
    return has_any;
}

bool Conductor::drain_submissions(TimePoint now) {
    bool has_any = false;
    for (auto& [id, session] : sessions_) has_any |= drain_session(*session, now);
    return has_any;
}

void Conductor::run_jobs(TimePoint now) {
    const bool is_timer_due = now >= timers_due_;
    if (is_timer_due) timers_due_ = now + kTimersEvery;
    for (auto& [hash, job] : jobs_) {
        if (job->is_ended()) continue;
        if (is_timer_due) job->on_time(now);
        job->run(now);
        if (job->is_ended()) retire(*job, now);
    }
}

void Conductor::ring_clients() {
    for (auto& [id, session] : sessions_)
        if (session->needs_ring) {
            session->memory->ring_client();
            session->needs_ring = false;
        }
}

bool Conductor::run_once(TimePoint now) {
    tick_.fetch_add(1, std::memory_order_relaxed);
    bool has_any = drain_network(now);
    has_any |= drain_codec(now);
    has_any |= drain_submissions(now);
    run_jobs(now);
    ring_clients();
    if (network_) network_->on_tick(tick());
    if (now >= status_due_) {
        status_due_ = now + kStatusEvery;
        remove_gone(now);
        share_out_sent_bytes();
        publish_status(now);
    }
    return has_any;
}

void Conductor::on_ready(std::uint64_t tag, TimePoint now) {
    const auto kind = tag >> 56U;
    if (kind == kListenerTag) {
        accept_sessions(now);
        return;
    }
    if (kind == kDoorbellTag) return doorbell_.drain();
    const auto place = sessions_.find(tag & ((std::uint64_t{1} << 56U) - 1));
    if (place == sessions_.end()) return;
    auto& session = *place->second;
    if (kind == kBellTag && !session.is_gone) return session.doorbell->drain();
    if (kind == kSocketTag && !session.is_gone) return on_socket_ready(session, now);
    if (kind == kProcessTag && !session.is_gone) {
        if (session.memory) drain_session(session, now);
        if (session.job != nullptr)
            session.job->on_session_gone(session, "its process (pid " + std::to_string(session.who.pid) + " of " + session.user + ") died", now);
        session.is_gone = true;
    }
    // Level-triggered: a descriptor of a session that is gone must not keep the loop awake until it is removed.
    for (const int fd : {session.connection.fd(), session.process.get(), session.doorbell->fd()})
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Conductor::wait(Duration timeout) {
    wake_.announce_sleep();
    bool has_work = pool_.has_done() || (network_ && network_->has_inbox());
    for (auto& [id, session] : sessions_) {
        if (!session->memory) continue;
        session->memory->announce_sleep(true);
        has_work = has_work || (!session->is_gone && session->memory->has_submission());
    }
    std::array<struct epoll_event, 64> events{};
    const auto timeout_ms = has_work ? 0 : static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(timeout).count());
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    wake_.announce_awake();
    for (auto& [id, session] : sessions_)
        if (session->memory) session->memory->announce_sleep(false);
    const auto now = SteadyClock().now();
    for (int index = 0; index < count; ++index) on_ready(events[static_cast<std::size_t>(index)].data.u64, now);
}

void Conductor::begin_stop(TimePoint now) {
    is_stopping_ = true;
    for (auto& [hash, job] : jobs_) job->on_daemon_stopping(now);
    for (auto& [hash, job] : jobs_) {
        job->run(now);
        if (job->is_ended()) retire(*job, now);
    }
    ring_clients();
}

bool Conductor::is_drained() const {
    return std::all_of(jobs_.begin(), jobs_.end(), [](const auto& item) { return item.second->is_ended(); }) &&
           (!network_ || network_->queue_depth() == 0);
}

void Conductor::apply_config(const Config& fresh) {
    config_.memory_limit_bytes = fresh.memory_limit_bytes;
    budget_.limit_bytes = memory_limit(config_);
    config_.credit_bytes = fresh.credit_bytes;
    config_.log_level = fresh.log_level;
    if (jobs_.empty()) {
        config_.nodes = fresh.nodes;
        config_.self = fresh.self;
        peers_.assign(config_.nodes.size(), {});
    }
    config_.origins = fresh.origins;
}

void Conductor::retire(HostedJob& job, TimePoint now) {
    share_out_sent_bytes();
    job.set_retired();
    std::uint64_t steps = 0;
    for (const auto& group : job.groups()) steps += group.steps_committed;
    const double ratio = job.sent_bytes() > 0 ? job.allreduce_bytes() / job.sent_bytes() : 0;
    ended_jobs_.push_front({job.key(), job.end_status().is_ok() ? "all ranks detached" : job.end_status().to_string(), steps, ratio, job.sent_bytes(), now});
    if (ended_jobs_.size() > kEndedJobsKept) ended_jobs_.pop_back();
    if (!job.end_status().is_ok()) note_error("job " + job.key().name + ": " + job.end_status().text(), now);
    status_due_ = now;
}

void Conductor::remove_gone(TimePoint) {
    for (auto place = sessions_.begin(); place != sessions_.end();) {
        auto& session = *place->second;
        if (!session.is_gone || (session.job != nullptr && !session.job->can_forget_sessions())) {
            ++place;
            continue;
        }
        if (session.job != nullptr) session.job->forget(session);
        place = sessions_.erase(place);
    }
    std::erase_if(jobs_, [](const auto& item) { return item.second->is_removable(); });
    std::erase_if(leaving_jobs_, [](const auto& job) { return job->is_removable(); });
}

void Conductor::share_out_sent_bytes() {
    if (!network_) return;
    std::uint64_t sent = 0;
    for (const auto& peer : network_->counters()) sent += peer.bytes_sent;
    const auto fresh = static_cast<double>(sent - sent_bytes_shared_);
    double payload_total = 0;
    std::vector<std::pair<HostedJob*, double>> shares;
    for (auto& [hash, job] : jobs_) {
        if (job->is_retired()) continue;
        shares.emplace_back(job.get(), job->payload_bytes_since_last_share());
        payload_total += shares.back().second;
    }
    sent_bytes_shared_ = sent;
    for (auto& [job, payload] : shares)
        job->add_sent_bytes(payload_total > 0 ? fresh * payload / payload_total : fresh / static_cast<double>(shares.size()));
}

void Conductor::publish_status(TimePoint now) {
    if (const auto status = status_page_.publish(status_document(*this, now), now); !status.is_ok()) {
        note_error("status page: " + status.text(), now);
        status_page_.beat(now);
    }
}

void Conductor::note_error(const std::string& text, TimePoint now) {
    for (auto& error : errors_)
        if (error.text == text) {
            ++error.count;
            error.last = now;
            return;
        }
    log_.warning(text, {});
    errors_.push_front({text, 1, now});
    if (errors_.size() > kErrorsKept) errors_.pop_back();
}

}  // namespace gradsieve::daemon

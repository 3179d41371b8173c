#include "daemon/conductor.hpp"

#include "daemon/epoll_tag.hpp"

#include <sys/epoll.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

namespace gradsieve::daemon {

namespace {

constexpr Duration kStatusEvery = std::chrono::milliseconds(250);
constexpr Duration kTimersEvery = std::chrono::milliseconds(10);
/// A few times what a wake-up costs (measured 2026-11: 4 to 10 us), so that spinning never costs more than it could
/// save.
constexpr Duration kSpinFor = std::chrono::microseconds(30);
/// A GPU tells nobody that it wrote a ready word: so often somebody looks while a hand-in waits for one.
constexpr Duration kPollEvery = std::chrono::microseconds(50);
constexpr std::size_t kEndedJobsKept = 16;
constexpr std::size_t kErrorsKept = 32;

/// 0 in the configuration means half of the RAM.
ByteCount memory_limit(const Config& config) {
    if (config.memory_limit_bytes > 0) return config.memory_limit_bytes;
    return static_cast<ByteCount>(::sysconf(_SC_PHYS_PAGES)) * static_cast<ByteCount>(::sysconf(_SC_PAGESIZE)) / 2;
}

/// epoll_wait with the resolution of the clock, where the kernel has it (Linux 5.11); else in whole milliseconds.
int wait_for_events(int epoll, std::span<struct epoll_event> events, Duration timeout) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(timeout);
    const timespec until{seconds.count(), (timeout - seconds).count()};
    const int count = ::epoll_pwait2(epoll, events.data(), static_cast<int>(events.size()), &until, nullptr);
    if (count >= 0 || errno != ENOSYS) return count;
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
    return ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), static_cast<int>(milliseconds));
}

}  // namespace

Conductor::Conductor(Config config, shm::LocalListener& listener, shm::Doorbell& doorbell, WakeFlag& wake,
                     CodecPool& pool, GpuPool& gpus, std::unique_ptr<NetworkThread> network,
                     shm::StatusPageWriter& status_page, Log& log, std::vector<HandedDescriptor> kept,
                     Snapshotter* snapshots)
    : listener_(listener),
      doorbell_(doorbell),
      wake_(wake),
      pool_(pool),
      gpus_(gpus),
      status_page_(status_page),
      log_(log),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      config_(std::move(config)),
      network_(std::move(network)),
      kept_states_(budget_, log, &gpus),
      snapshots_(snapshots),
      peers_(config_.nodes.size()),
      started_(SteadyClock().now()) {
    budget_.limit_bytes = memory_limit(config_);
    budget_.make_room = [this] { return kept_states_.drop_oldest("its memory is needed for a job that runs"); };
    if (config_.keep_state_for == Duration{})
        for (const auto& descriptor : std::exchange(kept, {})) unpark_descriptor(descriptor.name);
    kept_states_.adopt(std::move(kept), started_, config_.gpu_memory_limit_bytes);
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
        log_.error("epoll refuses a descriptor: errno " + std::to_string(errno) + ": raise fs.epoll.max_user_watches",
                   {});
}

bool Conductor::drain_network(TimePoint now) {
    if (!network_) return false;
    inbox_.clear();
    network_->take_inbox(inbox_);
    for (const auto& event : inbox_.events) {
        peers_[event.peer] = {event.state, event.instance, event.text, now};
        status_due_ = now;  // a peer that is lost is named at once
        const auto line = config_.nodes[event.peer].name + " is " +
                          std::string(transport::peer_state_name(event.state)) +
                          (event.text.empty() ? "" : ": " + event.text);
        if (event.state == transport::PeerState::kUp)
            log_.info(line, {.peer = config_.nodes[event.peer].name});
        else
            log_.warning(line, {.peer = config_.nodes[event.peer].name});
        for (auto& [hash, job] : jobs_) job->on_peer_event(event, now);
    }
    for (const auto& frame : inbox_.frames) {
        if (exchange::is_for_every_job(frame.header.type)) {  // a job of the same name may be another run of it
            for (auto& [other, job] : jobs_) job->on_frame(frame, now);
            continue;
        }
        const auto hash = exchange::job_of_frame(frame.body.bytes());
        const auto place = hash ? jobs_.find(*hash) : jobs_.end();
        if (place != jobs_.end()) place->second->on_frame(frame, now);
    }
    return !inbox_.events.empty() || !inbox_.frames.empty();
}

/// The hash may by now name a new life of the job: the tensor's address tells whose task it is.
HostedJob* Conductor::owner_of(std::uint64_t job_hash, const HostedTensor* tensor) {
    const auto is_owner = [&](const HostedJob& job) {
        return !job.tensors().empty() && tensor >= job.tensors().data() &&
               tensor < job.tensors().data() + job.tensors().size();
    };
    const auto place = jobs_.find(job_hash);
    if (place != jobs_.end() && is_owner(*place->second)) return place->second.get();
    for (auto& job : leaving_jobs_)
        if (is_owner(*job)) return job.get();
    return nullptr;
}

bool Conductor::drain_codec(TimePoint now) {
    auto finished = pool_.take_done();
    for (auto& task : finished)
        if (auto* job = owner_of(task->job_hash, task->tensor)) job->on_task_done(std::move(task), now);
    return !finished.empty();
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
        if (is_timer_due && !job->is_ended()) job->on_time(now);
        job->run(now);  // an ended job still answers peers that missed the end
        if (!job->is_ended() || job->is_retired()) continue;
        // Listed once its last frames have been counted, or a short job would seem to have sent nothing.
        if (!network_ || network_->has_counted(job->ended_at())) retire(*job, now);
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
    has_any |= drain_gpus(now);
    has_any |= drain_snapshots(now);
    has_any |= drain_submissions(now);
    drain_sent_frames();
    run_jobs(now);
    ring_clients();
    if (network_) network_->on_tick(tick());
    if (now >= status_due_) {
        status_due_ = now + kStatusEvery;
        remove_gone(now);
        kept_states_.on_time(config_.keep_state_for, now);
        share_out_sent_bytes();
        publish_status(now);
    }
    return has_any;
}

void Conductor::on_ready(std::uint64_t tag, TimePoint now) {
    const auto kind = tag_kind(tag);
    if (kind == kListenerTag) {
        accept_sessions(now);
        return;
    }
    if (kind == kDoorbellTag) return doorbell_.drain();
    const auto place = sessions_.find(tag_session(tag));
    if (place == sessions_.end()) return;
    auto& session = *place->second;
    if (kind == kBellTag && !session.is_gone) return session.doorbell->drain();
    if (kind == kSocketTag && !session.is_gone) return on_socket_ready(session, now);
    if (kind == kProcessTag && !session.is_gone) {
        if (session.memory) drain_session(session, now);
        if (session.job != nullptr)
            session.job->on_session_gone(
                session, "its process (pid " + std::to_string(session.who.pid) + " of " + session.user + ") died", now);
        session.is_gone = true;
    }
    // Level-triggered: a descriptor of a session that is gone must not keep the loop awake until it is removed.
    for (const int fd : {session.connection.fd(), session.process.get(), session.doorbell->fd()})
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

bool Conductor::has_work() const {
    if (pool_.has_done() || gpus_.has_done() || (snapshots_ != nullptr && snapshots_->has_news()) ||
        (network_ && network_->has_inbox()))
        return true;
    return std::any_of(sessions_.begin(), sessions_.end(), [](const auto& item) {
        const auto& session = *item.second;
        return session.memory && !session.is_gone && !session.held && session.memory->has_submission();
    });
}

bool Conductor::is_polling() const {
    return std::any_of(sessions_.begin(), sessions_.end(),
                       [](const auto& item) { return item.second->held && !item.second->is_gone; });
}

bool Conductor::spin_for_work() const {
    // The ranks, the codec threads, the network and this thread: all may be busy at once.
    const auto busy_threads = sessions_.size() + pool_.thread_count() + 2;
    if (jobs_.empty() || std::thread::hardware_concurrency() <= busy_threads) return false;
    const SteadyClock clock;
    const auto give_up = clock.now() + kSpinFor;
    do {
        if (has_work()) return true;
    } while (clock.now() < give_up);
    return false;
}

void Conductor::wait(Duration timeout) {
    if (spin_for_work()) return;
    wake_.announce_sleep();
    for (auto& [id, session] : sessions_)
        if (session->memory) session->memory->announce_sleep(true);
    std::array<struct epoll_event, 64> events{};
    if (has_work())
        timeout = Duration{};
    else if (is_polling())
        timeout = std::min(timeout, kPollEvery);
    const int count = wait_for_events(epoll_.get(), events, timeout);
    wake_.announce_awake();
    for (auto& [id, session] : sessions_)
        if (session->memory) session->memory->announce_sleep(false);
    const auto now = SteadyClock().now();
    for (int index = 0; index < count; ++index) on_ready(events[static_cast<std::size_t>(index)].data.u64, now);
}

void Conductor::begin_stop(TimePoint now) {
    is_stopping_ = true;
    for (auto& [hash, job] : jobs_) job->on_daemon_stopping(now);
    run_jobs(now);
    ring_clients();
}

bool Conductor::is_drained() const {
    return std::all_of(jobs_.begin(), jobs_.end(), [](const auto& item) { return item.second->is_retired(); }) &&
           (!network_ || network_->queue_depth() == 0);
}

void Conductor::apply_limits(const Config& fresh) {
    auto nodes = config_.nodes;  // they change in set_nodes, together with the network
    take_reloadable_keys(config_, fresh);
    config_.nodes = std::move(nodes);
    budget_.limit_bytes = memory_limit(config_);
}

void Conductor::set_nodes(const Config& fresh, std::unique_ptr<NetworkThread> network) {
    GRADSIEVE_CHECK(jobs_.empty());
    config_.nodes = fresh.nodes;
    config_.self = fresh.self;
    peers_.assign(config_.nodes.size(), {});
    network_ = std::move(network);
    sent_bytes_shared_ = 0;  // its counters start anew
}

void Conductor::retire(HostedJob& job, TimePoint now) {
    share_out_sent_bytes();
    job.set_retired();
    std::uint64_t steps = 0;
    for (const auto& group : job.groups()) steps += group.steps_committed;
    const double ratio = job.sent_bytes() > 0 ? job.allreduce_bytes() / job.sent_bytes() : 0;
    ended_jobs_.push_front({job.key(), job.end_status().is_ok() ? "all ranks detached" : job.end_status().to_string(),
                            steps, ratio, job.sent_bytes(), now});
    if (ended_jobs_.size() > kEndedJobsKept) ended_jobs_.pop_back();
    if (!job.end_status().is_ok()) note_error("job " + job.key().name + ": " + job.end_status().text(), now);
    status_due_ = now;
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
        job->add_sent_bytes(payload_total > 0 ? fresh * payload / payload_total
                                              : fresh / static_cast<double>(shares.size()));
}

StatusFacts Conductor::status_facts() const {
    StatusFacts facts{.config = config_,
                      .peers = peers_,
                      .counters = network_ ? network_->counters() : std::vector<transport::PeerCounters>(),
                      .port = network_ ? network_->port_counters() : transport::PortCounters(),
                      .bound = network_ ? network_->bound_address() : "",
                      .jobs = {},
                      .ended_jobs = ended_jobs_,
                      .kept_states = kept_states_,
                      .errors = errors_,
                      .memory_bytes = budget_.used_bytes,
                      .memory_limit_bytes = budget_.limit_bytes,
                      .threads = pool_.thread_count(),
                      .gpus = {},
                      .started = started_,
                      .is_stopping = is_stopping_};
    for (const auto& [hash, job] : jobs_)
        if (!job->is_ended()) facts.jobs.push_back(job.get());
    facts.gpus = gpus_.views();
    return facts;
}

void Conductor::publish_status(TimePoint now) {
    if (const auto status = status_page_.publish(status_document(status_facts(), now), now); !status.is_ok()) {
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

#include "daemon/network_thread.hpp"

#include <pthread.h>

namespace gradsieve::daemon {

namespace {
constexpr Duration kPollFor = std::chrono::milliseconds(50);
constexpr Duration kDrainFor = std::chrono::milliseconds(500);
}  // namespace

NetworkThread::NetworkThread(std::unique_ptr<transport::Transport> transport, WakeFlag& conductor_wake, Log& log)
    : transport_(std::move(transport)),
      conductor_wake_(conductor_wake),
      log_(log),
      bound_address_(transport_->bound_address()),
      counters_(transport_->counters()) {
    thread_ = std::thread([this] { run(); });
}

NetworkThread::~NetworkThread() {
    is_stopping_.store(true, std::memory_order_release);
    transport_->wake();
    thread_.join();
}

void NetworkThread::send(PeerIndex to, transport::Lane lane, transport::OutFrame frame, FrameMark mark) {
    auto outgoing = std::make_unique<Outgoing>(Outgoing{to, lane, std::move(frame), mark});
    if (!backlog_.empty() || !to_network_.try_push(outgoing)) backlog_.push_back(std::move(outgoing));
    transport_->wake();
}

void NetworkThread::take_inbox(transport::Inbox& ret_inbox) {
    while (auto batch = to_conductor_.try_pop()) {
        for (auto& frame : (*batch)->frames) ret_inbox.frames.push_back(std::move(frame));
        for (auto& event : (*batch)->events) ret_inbox.events.push_back(std::move(event));
    }
}

void NetworkThread::on_tick(std::uint64_t tick) {
    tick_.store(tick, std::memory_order_relaxed);
    bool has_moved = false;
    while (!backlog_.empty() && to_network_.try_push(backlog_.front())) {
        backlog_.pop_front();
        has_moved = true;
    }
    if (has_moved) transport_->wake();
}

std::vector<transport::PeerCounters> NetworkThread::counters() const {
    const std::lock_guard lock(counters_mutex_);
    return counters_;
}

transport::PortCounters NetworkThread::port_counters() const {
    const std::lock_guard lock(counters_mutex_);
    return port_counters_;
}

bool NetworkThread::has_counted(TimePoint time) const {
    const std::lock_guard lock(counters_mutex_);
    // Taken a whole period later: the thread's clock was read before it emptied the queue.
    return counters_taken_ >= time + kCountersEvery;
}

void NetworkThread::send_queued() {
    while (auto outgoing = to_network_.try_pop()) {
        auto& item = **outgoing;
        if (const auto status = transport_->send(item.to, item.lane, std::move(item.frame)); !status.is_ok())
            log_.warning("frame not sent: " + status.to_string(), {});
        if (item.mark.number == 0) continue;
        SentFrame sent{item.mark, SteadyClock().now()};
        static_cast<void>(sent_.try_push(sent));  // full: it is not told
    }
}

void NetworkThread::publish_counters(TimePoint now) {
    if (now < counters_due_) return;
    counters_due_ = now + kCountersEvery;
    auto fresh = transport_->counters();
    auto fresh_port = transport_->port_counters();
    const std::lock_guard lock(counters_mutex_);
    counters_ = std::move(fresh);
    port_counters_ = std::move(fresh_port);
    counters_taken_ = now;
}

void NetworkThread::log_notices(std::vector<transport::Notice>& notices) {
    for (const auto& notice : notices)  // strangers' are bounded by the transport
        log_.warning(notice.text, {.peer = notice.peer});
    notices.clear();
}

void NetworkThread::run() {
    pthread_setname_np(pthread_self(), "network");
    const SteadyClock clock;
    std::unique_ptr<transport::Inbox> inbox = std::make_unique<transport::Inbox>();
    TimePoint drain_until{};
    while (true) {
        const auto now = clock.now();
        if (is_stopping_.load(std::memory_order_acquire)) {
            if (drain_until == TimePoint{}) drain_until = now + kDrainFor;
            std::uint64_t queued = 0;
            for (const auto& peer : transport_->counters()) queued += peer.queued_bytes;
            if ((to_network_.is_empty() && queued == 0) || now >= drain_until) break;
        }
        transport_->set_tick(tick_.load(std::memory_order_relaxed));
        send_queued();
        publish_counters(now);
        if (const auto status = transport_->poll(kPollFor, *inbox); !status.is_ok())
            log_.warning("network: " + status.to_string(), {});
        log_notices(inbox->notices);
        if (inbox->frames.empty() && inbox->events.empty()) continue;
        const auto arrived = clock.now();
        for (auto& frame : inbox->frames)
            if (frame.arrived == TimePoint{}) frame.arrived = arrived;
        // A full queue means a conductor that is far behind: what arrived stays here, and TCP slows the peers down.
        if (to_conductor_.try_push(inbox)) {
            inbox = std::make_unique<transport::Inbox>();
            conductor_wake_.ring();
        }
    }
}

}  // namespace gradsieve::daemon

#include "transport/zmq_transport.hpp"

#include "base/unique_fd.hpp"
#include "transport/local_network.hpp"
#include "transport/outgoing.hpp"
#include "transport/port_holder.hpp"
#include "transport/zmq_peer.hpp"
#include "transport/zmq_zap.hpp"

#include <sys/eventfd.h>
#include <algorithm>
#include <atomic>
#include <iterator>
#include <random>

namespace gradsieve::transport {
namespace {

constexpr std::size_t kFramesPerTurn = 256;  // then the caller gets a turn
constexpr ByteCount kBytesPerTurn = ByteCount{64} << 20U;
constexpr Duration kFlushAgain = std::chrono::milliseconds(10);  // a connection stands, but took nothing yet
constexpr Duration kWaitMax = std::chrono::hours(1);             // keeps sums of times inside their type

std::uint64_t random_instance() {
    std::random_device device;
    const auto value = (static_cast<std::uint64_t>(device()) << 32U) | device();
    return value == 0 ? 1 : value;
}

class ZmqTransport final : public Transport {
public:
    ZmqTransport(const ZmqOptions& options, const Clock& clock)
        : options_(options), clock_(clock), last_turn_(clock.now()) {}

    Status start();

    Status send(PeerIndex to, Lane lane, OutFrame frame) override;
    Status poll(Duration timeout, Inbox& ret_inbox) override;
    void wake() override;
    void set_tick(std::uint64_t tick) override { tick_ = tick; }
    std::vector<PeerCounters> counters() const override;
    PortCounters port_counters() const override;
    std::string bound_address() const override { return bound_address_; }

private:
    [[nodiscard]] PeerIndex nodes() const noexcept { return static_cast<PeerIndex>(options_.nodes.size()); }
    Status listen();
    /// Everything that is there now: changes, refusals, frames; then silence and heartbeats.
    Status run_turn(Inbox& ret_inbox);
    Status take_changes();
    /// Who wants in, who was turned away, and what to try again.
    Status mind_handshakes(TimePoint now);
    Status take_arrivals(TimePoint now, Inbox& ret_inbox);
    Status take(Arrival& arrival, TimePoint now, Inbox& ret_inbox);
    Status send_heartbeats(TimePoint now);
    bool take_wake();
    [[nodiscard]] Duration until_upkeep() const;

    // constant after construction
    const ZmqOptions options_;
    const Clock& clock_;
    const std::uint64_t instance_ = random_instance();
    std::string bound_address_ = "none (single node)";

    UniqueFd wake_fd_;                     ///< any thread writes, the network thread reads
    std::atomic<bool> is_wanted_ = false;  ///< any thread sets it with the above: arrivals have to wait for a turn

    // owned by the network thread; the context comes before the sockets, so that it ends after them
    std::unique_ptr<ZmqContext> context_;
    std::optional<ZmqZap> zap_;  ///< CURVE only; before the receiver, so that it ends after it
    std::optional<ZmqReceiver> receiver_;
    std::vector<ZmqPeer> peers_;  ///< by PeerIndex; at our own, what cannot be attributed is counted
    ZmqPoller poller_;
    std::vector<PeerEvent> events_;
    std::vector<Notice> notices_;
    std::string last_port_refusal_;
    std::uint64_t tick_ = 0;
    TimePoint next_heartbeat_{};
    TimePoint last_turn_;
    bool is_drained_ = true;  ///< nothing was left to read at the end of the last turn
};

Status ZmqTransport::start() {
    wake_fd_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!wake_fd_.is_open())
        return {StatusCode::kResourceExhausted, "eventfd: no descriptor is free; raise LimitNOFILE"};
    poller_.add(wake_fd_.get());
    for (PeerIndex peer = 0; peer < nodes(); ++peer) peers_.emplace_back(options_, peer);
    if (nodes() < 2) return {};
    const std::size_t dialers = options_.nodes.size() * (2 + options_.lanes);
    GRADSIEVE_ASSIGN(context_, ZmqContext::make(1 + kSocketsPerListener + dialers * kSocketsPerDialer));
    if (options_.secret_key) {
        GRADSIEVE_ASSIGN(auto zap, ZmqZap::make(*context_, PeerKeys(options_.nodes, options_.self)));
        zap_.emplace(std::move(zap));
        poller_.add(zap_->socket());
    }
    GRADSIEVE_TRY(listen());
    for (PeerIndex peer = 0; peer < nodes(); ++peer) {
        if (peer != options_.self) GRADSIEVE_TRY(peers_[peer].dial(*context_, options_, instance_, poller_));
    }
    return {};
}

Status ZmqTransport::listen() {
    const auto port = options_.nodes[options_.self].port;
    GRADSIEVE_ASSIGN(const auto choice, choose_bind_address(ask_bind_question(options_)));
    const auto address = endpoint_text(choice.address, port);
    auto listener = context_->make_listener({"tcp://" + address, choice.address.is_ipv6,
                                             options_.frame_limit_bytes + kFrameHeaderBytes, options_.secret_key});
    if (!listener.is_ok() && listener.error().code() == StatusCode::kAlreadyExists) {
        return {StatusCode::kAlreadyExists,
                "listening on " + address + ": " + port_holder_text(port) + "; end it, or give this node another port"};
    }
    if (!listener.is_ok()) return listener.error();
    receiver_.emplace(std::move(*listener), options_.nodes, options_.self, options_.frame_limit_bytes);
    poller_.add(receiver_->socket());
    bound_address_ = address + " (" + choice.why + ")";
    return {};
}

Status ZmqTransport::send(PeerIndex to, Lane lane, OutFrame frame) {
    GRADSIEVE_TRY(check_outgoing(nodes(), options_.self, to, frame, options_.frame_limit_bytes));
    return peers_[to].send(lane, frame, options_.queue_limit_bytes, events_);
}

Status ZmqTransport::poll(Duration timeout, Inbox& ret_inbox) {
    const SteadyClock steady;  // the wait is real time, whatever clock judges silence
    const auto deadline = steady.now() + std::min(timeout, kWaitMax);
    const auto frames_before = ret_inbox.frames.size();
    for (;;) {
        const auto wait = std::min(deadline - steady.now(), until_upkeep());
        GRADSIEVE_TRY(poller_.wait(events_.empty() && notices_.empty() ? wait : Duration::zero()));
        const bool is_woken = take_wake();
        GRADSIEVE_TRY(run_turn(ret_inbox));
        const bool has_news = !events_.empty() || !notices_.empty() || ret_inbox.frames.size() != frames_before;
        const bool is_wanted = is_woken || is_wanted_.load(std::memory_order_relaxed);
        if (!has_news && !is_wanted && steady.now() < deadline) continue;
        std::move(events_.begin(), events_.end(), std::back_inserter(ret_inbox.events));
        events_.clear();
        std::move(notices_.begin(), notices_.end(), std::back_inserter(ret_inbox.notices));
        notices_.clear();
        return {};
    }
}

Status ZmqTransport::run_turn(Inbox& ret_inbox) {
    if (!receiver_) return {};
    const auto now = clock_.now();
    // If we were not running ourselves, the peers' silence is ours.
    const bool is_late = now - last_turn_ > options_.heartbeat_every + options_.silent_after / 2;
    last_turn_ = now;
    if (is_late) {
        for (auto& peer : peers_) peer.life().forgive(now);
    }
    GRADSIEVE_TRY(take_changes());
    GRADSIEVE_TRY(mind_handshakes(now));
    for (auto& peer : peers_) GRADSIEVE_TRY(peer.take_answers(events_));
    GRADSIEVE_TRY(take_arrivals(now, ret_inbox));
    if (is_drained_) {
        for (auto& peer : peers_) peer.life().on_time(now, events_);
    }
    return send_heartbeats(now);
}

Status ZmqTransport::take_changes() {
    for (auto& peer : peers_) GRADSIEVE_TRY(peer.take_changes(events_));
    return {};
}

Status ZmqTransport::mind_handshakes(TimePoint now) {
    if (zap_) {
        const auto refused_before = zap_->keys().refused();
        GRADSIEVE_TRY(zap_->answer(notices_));
        if (zap_->keys().refused() != refused_before) last_port_refusal_ = zap_->keys().last_refusal();
    }
    const auto failed_before = receiver_->handshakes_failed();
    receiver_->take_failures(notices_);
    if (receiver_->handshakes_failed() != failed_before) last_port_refusal_ = receiver_->last_failure();
    for (auto& peer : peers_) {
        peer.take_notices(notices_);
        GRADSIEVE_TRY(peer.redial(now));
    }
    return {};
}

Status ZmqTransport::take_arrivals(TimePoint now, Inbox& ret_inbox) {
    ByteCount bytes = 0;
    is_drained_ = false;
    for (std::size_t count = 0; count < kFramesPerTurn && bytes < kBytesPerTurn; ++count) {
        GRADSIEVE_ASSIGN(auto received, receiver_->try_receive());
        if (!received) {
            is_drained_ = true;
            return {};
        }
        // Whoever woke us has something to send: it leaves before what else comes in is looked at.
        const bool is_wanted = is_wanted_.load(std::memory_order_relaxed);
        if (auto* arrival = std::get_if<Arrival>(&*received)) {
            bytes += arrival->wire_bytes;
            GRADSIEVE_TRY(take(*arrival, now, ret_inbox));
        } else {
            const auto& refusal = std::get<Refusal>(*received);
            peers_[refusal.from.value_or(options_.self)].on_refusal(refusal);
        }
        if (is_wanted) return {};
    }
    return {};
}

Status ZmqTransport::take(Arrival& arrival, TimePoint now, Inbox& ret_inbox) {
    auto& peer = peers_[arrival.from];
    // A new life of the peer: first hear that the connections to its last one are gone.
    if (arrival.instance != peer.life().instance()) GRADSIEVE_TRY(take_changes());
    peer.on_arrival(arrival, now, events_);
    if (arrival.frame) ret_inbox.frames.push_back(std::move(*arrival.frame));
    return {};
}

Status ZmqTransport::send_heartbeats(TimePoint now) {
    if (now < next_heartbeat_) return {};
    next_heartbeat_ = now + options_.heartbeat_every;
    const auto body = SharedView::take(build_heartbeat(tick_));
    const auto message = joined(message_parts({kHeartbeatType, 0, 0}, {&body, 1}));
    for (auto& peer : peers_) GRADSIEVE_TRY(peer.send_heartbeat(message));
    return {};
}

Duration ZmqTransport::until_upkeep() const {
    if (!receiver_) return kWaitMax;
    if (!is_drained_) return Duration::zero();
    const auto now = clock_.now();
    auto due = next_heartbeat_;
    for (const auto& peer : peers_) {
        due = std::min({due, peer.life().silent_at(), peer.redial_at()});
        if (peer.wants_flush()) due = std::min(due, now + kFlushAgain);
    }
    return due - now;
}

void ZmqTransport::wake() {
    const std::uint64_t one = 1;
    is_wanted_.store(true, std::memory_order_relaxed);  // a hint; what counts is the descriptor
    // Fails only if the counter is full, and then the poll ends just as well.
    if (write(wake_fd_.get(), &one, sizeof one) < 0) return;
}

bool ZmqTransport::take_wake() {
    std::uint64_t count = 0;
    is_wanted_.store(false, std::memory_order_relaxed);
    return read(wake_fd_.get(), &count, sizeof count) == sizeof count;
}

std::vector<PeerCounters> ZmqTransport::counters() const {
    std::vector<PeerCounters> result;
    for (const auto& peer : peers_) result.push_back(peer.counters());
    return result;
}

PortCounters ZmqTransport::port_counters() const {
    PortCounters counters;
    if (zap_) counters.keys_refused = zap_->keys().refused();
    if (receiver_) counters.handshakes_failed = receiver_->handshakes_failed();
    counters.last_refusal = last_port_refusal_;
    return counters;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_zmq_transport(const ZmqOptions& options, const Clock& clock) {
    GRADSIEVE_TRY(check_options(options));
    auto transport = std::make_unique<ZmqTransport>(options, clock);
    GRADSIEVE_TRY(transport->start());
    return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace gradsieve::transport

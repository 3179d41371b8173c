#include "transport/loopback_transport.hpp"

#include "transport/outgoing.hpp"
#include "transport/peer_life.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>

namespace gradsieve::transport {
namespace {

constexpr ByteCount kFrameLimitBytes = ByteCount{64} << 20U;
constexpr ByteCount kQueueLimitBytes = ByteCount{1} << 30U;
constexpr Duration kSilentAfter = std::chrono::seconds(3);
constexpr Duration kLoopbackWaitMax = std::chrono::hours(1);  // keeps sums of times inside their type

/// Frames on their way from one node to another.
struct Link {
    std::array<std::deque<InFrame>, 2> lanes;  ///< by Lane
    ByteCount queued_bytes = 0;
    bool is_open = true;
    TimePoint closed_at{};

    void clear() {
        for (auto& lane : lanes) lane.clear();
        queued_bytes = 0;
    }
};
/// A node's place in the network, taken by one endpoint at a time.
struct Seat {
    std::uint64_t lives = 0;
    std::uint64_t instance = 0;  ///< of the endpoint that sits here; 0 = nobody
    std::uint64_t tick = 0;
    bool is_woken = false;
    std::condition_variable changed;
};

std::string node_text(PeerIndex node) { return "node " + std::to_string(node); }

}  // namespace

struct LoopbackNetwork::Impl {
    class Endpoint;

    Impl(PeerIndex count, const Clock& with_clock)
        : nodes(count),
          clock(with_clock),
          is_manual(dynamic_cast<const ManualClock*>(&with_clock) != nullptr),
          seats(count),
          links(std::size_t{count} * count) {}

    Link& link(PeerIndex from, PeerIndex to) { return links[std::size_t{from} * nodes + to]; }
    void notify_all() {
        for (auto& seat : seats) seat.changed.notify_all();
    }
    void leave(PeerIndex node) {
        seats[node].instance = 0;
        for (PeerIndex other = 0; other < nodes; ++other) {
            link(node, other).clear();
            link(other, node).clear();
        }
        notify_all();
    }

    // constant after construction
    const PeerIndex nodes;
    const Clock& clock;
    const bool is_manual;  ///< a poll must not wait for a time that only the caller can bring

    // guarded by mutex
    std::mutex mutex;
    std::vector<Seat> seats;
    std::vector<Link> links;
};

class LoopbackNetwork::Impl::Endpoint final : public Transport {
public:
    Endpoint(Impl& network, PeerIndex self);
    ~Endpoint() override;

    Status send(PeerIndex to, Lane lane, OutFrame frame) override;
    Status poll(Duration timeout, Inbox& ret_inbox) override;
    void wake() override;
    void set_tick(std::uint64_t tick) override;
    std::vector<PeerCounters> counters() const override;
    std::string bound_address() const override { return node_text(self_) + " (in this process)"; }

private:
    struct Peer {
        PeerLife life;
        PeerCounters counters;
    };
    // all under the network's mutex
    [[nodiscard]] Status check_alive() const;
    void take_life(PeerIndex peer, TimePoint now, Inbox& ret_inbox);
    void take_frames(PeerIndex peer, Inbox& ret_inbox);
    [[nodiscard]] Duration until_silence(TimePoint now) const;

    Impl& network_;
    const PeerIndex self_;
    std::uint64_t instance_ = 0;
    std::vector<Peer> peers_;
};

LoopbackNetwork::Impl::Endpoint::Endpoint(Impl& network, PeerIndex self) : network_(network), self_(self) {
    const std::lock_guard lock(network_.mutex);
    auto& seat = network_.seats[self];
    if (seat.instance != 0) network_.leave(self);  // whoever sat here is dead now
    instance_ = (++seat.lives << 32U) | (self + 1U);
    seat.instance = instance_;
    seat.tick = 0;
    seat.is_woken = false;
    for (PeerIndex peer = 0; peer < network_.nodes; ++peer) {
        peers_.push_back({PeerLife(peer, node_text(peer), kSilentAfter, 1), {}});
        peers_.back().counters.address = node_text(peer);
    }
}

LoopbackNetwork::Impl::Endpoint::~Endpoint() {
    const std::lock_guard lock(network_.mutex);
    if (network_.seats[self_].instance == instance_) network_.leave(self_);
}

Status LoopbackNetwork::Impl::Endpoint::check_alive() const {
    if (network_.seats[self_].instance == instance_) return {};
    return {StatusCode::kUnavailable, node_text(self_) + " was killed: only a new endpoint can use the network again"};
}

Status LoopbackNetwork::Impl::Endpoint::send(PeerIndex to, Lane lane, OutFrame frame) {
    const std::lock_guard lock(network_.mutex);
    GRADSIEVE_TRY(check_alive());
    GRADSIEVE_TRY(check_outgoing(network_.nodes, self_, to, frame, kFrameLimitBytes));
    auto& link = network_.link(self_, to);
    const auto bytes = body_bytes(frame.parts);
    GRADSIEVE_TRY(check_queue(link.queued_bytes, bytes, kQueueLimitBytes));
    link.lanes[static_cast<std::size_t>(lane)].push_back({self_, frame.header, joined(frame.parts)});
    link.queued_bytes += bytes;
    peers_[to].counters.bytes_sent += kFrameHeaderBytes + bytes;
    ++peers_[to].counters.frames_sent;
    network_.seats[to].changed.notify_all();
    return {};
}

Status LoopbackNetwork::Impl::Endpoint::poll(Duration timeout, Inbox& ret_inbox) {
    const SteadyClock steady;
    const auto deadline = steady.now() + std::min(timeout, kLoopbackWaitMax);
    std::unique_lock lock(network_.mutex);
    const auto news_before = ret_inbox.frames.size() + ret_inbox.events.size();
    for (;;) {
        GRADSIEVE_TRY(check_alive());
        const auto now = network_.clock.now();
        for (PeerIndex peer = 0; peer < network_.nodes; ++peer) {
            if (peer == self_) continue;
            take_life(peer, now, ret_inbox);
            take_frames(peer, ret_inbox);
        }
        auto& seat = network_.seats[self_];
        const bool is_woken = std::exchange(seat.is_woken, false);
        const bool has_news = ret_inbox.frames.size() + ret_inbox.events.size() != news_before;
        if (has_news || is_woken || network_.is_manual || steady.now() >= deadline) return {};
        seat.changed.wait_until(lock, std::min(deadline, steady.now() + until_silence(now)));
    }
}

void LoopbackNetwork::Impl::Endpoint::take_life(PeerIndex index, TimePoint now, Inbox& ret_inbox) {
    auto& life = peers_[index].life;
    const auto& seat = network_.seats[index];
    const auto& link = network_.link(index, self_);
    if (!link.is_open) {
        if (link.closed_at > life.last_heard() && life.instance() != 0) life.on_heard(link.closed_at, ret_inbox.events);
    } else if (seat.instance == 0) {
        life.on_disconnected(0, ret_inbox.events);
    } else if (seat.instance != life.instance()) {
        life.on_disconnected(0, ret_inbox.events);
        life.on_connected(0, ret_inbox.events);
        life.on_hello(seat.instance, now, ret_inbox.events);
    } else {
        life.on_heard(now, ret_inbox.events);  // an endpoint that is there counts as beating
        peers_[index].counters.peer_tick = seat.tick;
    }
    life.on_time(now, ret_inbox.events);
}

void LoopbackNetwork::Impl::Endpoint::take_frames(PeerIndex peer, Inbox& ret_inbox) {
    auto& link = network_.link(peer, self_);
    if (!link.is_open) return;
    auto& counters = peers_[peer].counters;
    for (auto& lane : link.lanes) {
        for (auto& frame : lane) {
            counters.bytes_received += kFrameHeaderBytes + frame.body.bytes().size();
            ++counters.frames_received;
            ret_inbox.frames.push_back(std::move(frame));
        }
    }
    link.clear();
}

Duration LoopbackNetwork::Impl::Endpoint::until_silence(TimePoint now) const {
    auto due = now + kLoopbackWaitMax;
    for (const auto& peer : peers_) due = std::min(due, peer.life.silent_at());
    return due - now;
}

void LoopbackNetwork::Impl::Endpoint::wake() {
    const std::lock_guard lock(network_.mutex);
    auto& seat = network_.seats[self_];
    if (seat.instance == instance_) seat.is_woken = true;
    seat.changed.notify_all();
}

void LoopbackNetwork::Impl::Endpoint::set_tick(std::uint64_t tick) {
    const std::lock_guard lock(network_.mutex);
    if (network_.seats[self_].instance == instance_) network_.seats[self_].tick = tick;
}

std::vector<PeerCounters> LoopbackNetwork::Impl::Endpoint::counters() const {
    const std::lock_guard lock(network_.mutex);
    std::vector<PeerCounters> result;
    for (PeerIndex peer = 0; peer < network_.nodes; ++peer) {
        auto counters = peers_[peer].counters;
        counters.queued_bytes = peer == self_ ? 0 : network_.link(self_, peer).queued_bytes;
        counters.state = peers_[peer].life.state();
        counters.last_heard = peers_[peer].life.last_heard();
        result.push_back(std::move(counters));
    }
    return result;
}

LoopbackNetwork::LoopbackNetwork(PeerIndex nodes, const Clock& clock) : impl_(std::make_unique<Impl>(nodes, clock)) {}
LoopbackNetwork::~LoopbackNetwork() = default;

std::unique_ptr<Transport> LoopbackNetwork::make_endpoint(PeerIndex self) {
    GRADSIEVE_CHECK(self < impl_->nodes);
    return std::make_unique<Impl::Endpoint>(*impl_, self);
}

void LoopbackNetwork::set_link(PeerIndex from, PeerIndex to, bool is_open) {
    GRADSIEVE_CHECK(from < impl_->nodes && to < impl_->nodes);
    const std::lock_guard lock(impl_->mutex);
    auto& link = impl_->link(from, to);
    if (link.is_open && !is_open) link.closed_at = impl_->clock.now();
    link.is_open = is_open;
    impl_->notify_all();
}

void LoopbackNetwork::kill(PeerIndex node) {
    GRADSIEVE_CHECK(node < impl_->nodes);
    const std::lock_guard lock(impl_->mutex);
    impl_->leave(node);
}

}  // namespace gradsieve::transport

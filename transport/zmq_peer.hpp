// One peer as this node sees it: our connections to it, its life, and its counters. Network thread; owned by the
// transport.
#pragma once

#include "transport/peer_life.hpp"
#include "transport/zmq_channel.hpp"
#include "transport/zmq_options.hpp"
#include "transport/zmq_receiver.hpp"

namespace gradsieve::transport {

class ZmqPeer {
public:
    ZmqPeer(const ZmqOptions& options, PeerIndex peer);

    /// Opens the control, heartbeat and data connections and adds them to the poller.
    [[nodiscard]] Status dial(ZmqContext& context, const ZmqOptions& options, std::uint64_t instance,
                              ZmqPoller& poller);

    /// Error kResourceExhausted: the queue limit.
    [[nodiscard]] Status send(Lane lane, const OutFrame& frame, ByteCount queue_limit_bytes,
                              std::vector<PeerEvent>& ret_events);
    [[nodiscard]] Status send_heartbeat(const SharedView& message);
    /// Takes in changes of the connections and sends what waited for them.
    [[nodiscard]] Status take_changes(std::vector<PeerEvent>& ret_events);
    /// Connects again what ZeroMQ has given up.
    [[nodiscard]] Status redial(TimePoint now);
    /// When to call `redial` next.
    [[nodiscard]] TimePoint redial_at() const noexcept;
    /// What is news of handshakes that fail is moved to the end of `ret_notices`.
    void take_notices(std::vector<Notice>& ret_notices);
    /// Takes in refusals that came back on our connections.
    [[nodiscard]] Status take_answers(std::vector<PeerEvent>& ret_events);
    void on_arrival(const Arrival& arrival, TimePoint now, std::vector<PeerEvent>& ret_events);
    void on_refusal(const Refusal& refusal);

    [[nodiscard]] PeerLife& life() noexcept { return life_; }
    [[nodiscard]] const PeerLife& life() const noexcept { return life_; }
    [[nodiscard]] bool wants_flush() const noexcept;
    [[nodiscard]] PeerCounters counters() const;

private:
    [[nodiscard]] Status take_changes_of(std::size_t channel, std::vector<PeerEvent>& ret_events);
    void on_handshake_failed(LinkChange how);
    [[nodiscard]] std::string handshake_text(LinkChange how) const;
    [[nodiscard]] Status take_answers_of(ZmqChannel& channel, std::vector<PeerEvent>& ret_events);
    [[nodiscard]] ByteCount queued_bytes() const noexcept;

    // constant after construction
    PeerAddress node_;
    PeerAddress self_;
    PeerIndex peer_;
    std::optional<SecretKey> secret_key_;

    PeerLife life_;
    std::vector<ZmqChannel> channels_;  ///< control, heartbeat, then the data lanes; none for ourselves
    std::size_t next_lane_ = 0;
    std::uint64_t bytes_received_ = 0, frames_received_ = 0, frames_refused_ = 0, tick_ = 0;
    std::string last_refusal_;
    std::string handshake_;          ///< why it fails now; empty unless so
    std::size_t broken_in_row_ = 0;  ///< handshakes that ended without a cause, since one succeeded
    bool is_cause_known_ = false;    ///< of those that failed since then
    std::vector<Notice> notices_;
};

}  // namespace gradsieve::transport

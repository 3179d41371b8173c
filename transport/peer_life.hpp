// Whether one peer is there, as a pure state machine: it is told what was heard, which of our connections to it stand,
// and the time, and it writes the events. Must never read a clock or touch a socket. One thread; owned by its
// transport.
#pragma once

#include "transport/transport.hpp"

namespace gradsieve::transport {

class PeerLife {
public:
    /// `text`: how events name the peer, e.g. "b (10.0.0.2:7077)". `connections`: how many of ours must stand for kUp.
    PeerLife(PeerIndex peer, std::string text, Duration silent_after, std::size_t connections);

    /// A valid hello. Another instance than before: the peer was restarted.
    void on_hello(std::uint64_t instance, TimePoint now, std::vector<PeerEvent>& ret_events);
    /// Any complete frame of the current instance.
    void on_heard(TimePoint now, std::vector<PeerEvent>& ret_events);
    void on_connected(std::size_t connection, std::vector<PeerEvent>& ret_events);
    void on_disconnected(std::size_t connection, std::vector<PeerEvent>& ret_events);
    /// The peer will not listen to us; holds until the next connection.
    void on_refused(const std::string& cause, std::vector<PeerEvent>& ret_events);
    /// Names silence. Call it only after everything that has arrived was handed in.
    void on_time(TimePoint now, std::vector<PeerEvent>& ret_events);
    /// We were not running: the peer's silence counts from now.
    void forgive(TimePoint now) noexcept { quiet_since_ = now; }

    [[nodiscard]] PeerState state() const noexcept { return state_; }
    [[nodiscard]] std::uint64_t instance() const noexcept { return instance_; }
    [[nodiscard]] TimePoint last_heard() const noexcept { return last_heard_; }
    /// When silence will be named if nothing arrives until then; far away unless up.
    [[nodiscard]] TimePoint silent_at() const noexcept;

private:
    /// Its silence is news: it is up, or was heard before all of our connections to it stood.
    [[nodiscard]] bool is_watched() const noexcept;
    void enter(PeerState state, std::string text, std::vector<PeerEvent>& ret_events);
    void close(const std::string& cause, std::vector<PeerEvent>& ret_events);
    void try_rise(std::vector<PeerEvent>& ret_events);
    [[nodiscard]] bool is_connected() const noexcept { return open_connections_ == connections_.size(); }

    // constant after construction
    PeerIndex peer_;
    std::string text_;
    Duration silent_after_;

    std::vector<bool> connections_;
    std::size_t open_connections_ = 0;
    PeerState state_ = PeerState::kConnecting;
    std::uint64_t instance_ = 0;
    bool is_heard_ = false;  ///< since the last close
    bool is_refused_ = false;
    TimePoint last_heard_{};
    TimePoint quiet_since_{};  ///< last_heard_, or when we came back ourselves
};

}  // namespace gradsieve::transport

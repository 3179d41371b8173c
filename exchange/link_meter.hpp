// How long payloads take to the other nodes: from when a frame goes out with nothing before it unanswered until the
// peer has answered for all of it. It counts what the link and the peer's daemon take and not what the peer's ranks do,
// so a node that is late is no slow link. Time is an argument. Plain values; one thread.
#pragma once

#include "base/clock.hpp"
#include "base/id.hpp"

#include <array>
#include <vector>

namespace gradsieve::exchange {

class LinkMeter {
public:
    /// `bytes` (SendFrame::answered_bytes) leave for that peer.
    void on_sent(PeerIndex to, ByteCount bytes, TimePoint now);
    /// It has so many of them (credited_bytes).
    void on_answered(PeerIndex from, ByteCount bytes, TimePoint now);
    /// What is under way to it counts no more: its link was down.
    void forget(PeerIndex peer);

    /// Takes up what was answered since the last call. Nodes share out one link, so it is the slowest that counts.
    void settle();
    /// Of a payload byte that goes to every other node; as of the last settle() that saw an answer. 0 = not known yet.
    [[nodiscard]] double seconds_per_byte() const noexcept { return seconds_per_byte_; }
    /// The least that the link has shown lately, in bursts of half of the largest one's bytes at least: what is nearest
    /// to what it can, since answers to small bursts are mostly waited for. 0 = not known yet.
    [[nodiscard]] double best_seconds_per_byte() const noexcept;

private:
    /// From a frame with nothing unanswered before it to the last answer.
    struct Burst {
        ByteCount bytes = 0;
        double seconds = 0;
    };
    struct Peer {
        Burst open;
        std::array<Burst, 32> bursts{};  ///< the last ones, in a ring
        std::size_t next_burst = 0;
        ByteCount unanswered_bytes = 0;
        TimePoint busy_since{};  ///< or since the last answer
        double busy_seconds = 0;
        ByteCount answered_bytes = 0;
    };
    [[nodiscard]] Peer& peer(PeerIndex index);

    std::vector<Peer> peers_;
    double seconds_per_byte_ = 0;
};

}  // namespace gradsieve::exchange

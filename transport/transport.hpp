// Moves frames between daemons: the one interface that ZeroMQ, the in-process loopback and the fault injector share.
// Must never look into a body. Every call but `wake` comes from one thread (the network thread); nothing here blocks
// longer than the timeout given.
#pragma once

#include "base/clock.hpp"
#include "base/id.hpp"
#include "base/shared_view.hpp"
#include "base/status.hpp"

#include <string>
#include <vector>

namespace gradsieve::transport {

/// Control frames never wait behind bulk data; heartbeats have a lane of their own inside the transport.
enum class Lane : std::uint8_t { kControl = 0, kData = 1 };

/// Types below kFirstUserFrameType belong to the transport (hello, heartbeat); the rest to whoever sends.
inline constexpr std::uint16_t kFirstUserFrameType = 16;

struct FrameHeader {
    std::uint16_t type = 0;
    Epoch epoch = 0;
    std::uint64_t step = 0;
};
struct OutFrame {
    FrameHeader header;
    std::vector<SharedView> parts;  ///< the body, sent without a copy, concatenated on the far side
};
struct InFrame {
    PeerIndex from = 0;
    FrameHeader header;
    SharedView body;
    TimePoint arrived{};  ///< when it was taken from the transport; the network thread's word, not the transport's
};

enum class PeerState : std::uint8_t {
    kConnecting = 0,  ///< never heard of yet
    kUp = 1,          ///< frames arrive
    kSilent = 2,      ///< nothing complete arrived for `silent_after`
    kClosed = 3,      ///< the connection was closed or refused after having been up
};
[[nodiscard]] std::string_view peer_state_name(PeerState state) noexcept;
struct PeerEvent {
    PeerIndex peer = 0;
    PeerState state = PeerState::kConnecting;
    /// Differs after the peer's daemon was restarted.
    std::uint64_t instance = 0;
    std::string text;  ///< cause in words, e.g. "connection closed by 10.0.0.2:7070"
};

/// News for the log that changes no peer's state: a refused key, a handshake that fails. Each is told once.
struct Notice {
    std::string peer;  ///< its name; empty: a stranger
    std::string text;
};

struct Inbox {
    std::vector<InFrame> frames;
    std::vector<PeerEvent> events;
    std::vector<Notice> notices;
    void clear() {
        frames.clear();
        events.clear();
        notices.clear();
    }
};

struct PeerCounters {
    std::uint64_t bytes_sent =
        0;  ///< everything handed to the socket for this peer: headers, hellos, heartbeats, retries
    std::uint64_t bytes_received = 0;
    std::uint64_t frames_sent = 0;
    std::uint64_t frames_received = 0;
    std::uint64_t frames_refused = 0;  ///< bad magic, version, checksum, size
    std::uint64_t queued_bytes = 0;
    std::string last_refusal;
    PeerState state = PeerState::kConnecting;
    std::uint64_t peer_tick = 0;  ///< the peer's conductor tick from its last heartbeat
    TimePoint last_heard{};
    std::string address;  ///< what we connect to
    /// Why the handshake of our connections to it fails, e.g. "key refused by b (10.0.0.2:7077): ..."; empty unless so.
    std::string handshake;
};
/// What this node's port turned away before a frame could come.
struct PortCounters {
    std::uint64_t keys_refused = 0;  ///< connections under a key that is no peer's
    std::uint64_t handshakes_failed =
        0;                     ///< plain text where CURVE is wanted, the reverse, or for another server's key
    std::string last_refusal;  ///< of either
};

class Transport {
public:
    virtual ~Transport() = default;
    /// Queues a frame; never blocks. While the peer is not connected the frame waits for it; what was on the way when a
    /// connection closed is lost, and the kClosed event says so. Frames of one lane arrive in order (Lane::kData: if
    /// there is one data connection). Errors: kUnavailable (unknown peer or transport closed), kInvalidArgument (to
    /// ourselves, or a type below kFirstUserFrameType), kResourceExhausted (frame or queue limit).
    [[nodiscard]] virtual Status send(PeerIndex to, Lane lane, OutFrame frame) = 0;
    /// Waits up to `timeout` for frames or events and appends them. Returns early after `wake`.
    [[nodiscard]] virtual Status poll(Duration timeout, Inbox& ret_inbox) = 0;
    /// Any thread: ends a `poll` in progress, or makes the next one return at once.
    virtual void wake() = 0;
    /// What our heartbeats carry, so that a hung conductor shows at the peers.
    virtual void set_tick(std::uint64_t tick) = 0;
    [[nodiscard]] virtual std::vector<PeerCounters> counters() const = 0;
    /// All zero where there is no port.
    [[nodiscard]] virtual PortCounters port_counters() const { return {}; }
    /// Where peers reach us, e.g. "10.0.0.1:7070", and why it was chosen.
    [[nodiscard]] virtual std::string bound_address() const = 0;
};

}  // namespace gradsieve::transport

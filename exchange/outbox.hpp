// What is on its way to the peers: gathers records into frames and keeps the bytes in flight towards each peer within
// the credit window. Knows nothing of rounds; the payloads are the rounds'. One thread; owned by JobMachine.
//
// Why nothing deadlocks: a receiver takes every record as it comes and owes it to no submission of its own, so records
// in flight always turn into credit. It returns credit from half a window on, or at once when a frame says that the
// sender waits. A sender whose next record does not fit sends one reserved record all the same, the lowest incomplete
// (step, stream, tensor, chunk), and asks for credit with it; any credit re-arms the reserve. So each round trip moves
// at least the lowest record, whatever the window and the order in which the nodes hand in.
#pragma once

#include "base/byte_pool.hpp"
#include "exchange/job_context.hpp"

#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace gradsieve::exchange {

struct OutRecord {
    std::uint32_t tensor = 0;
    std::uint32_t chunk = 0;
    Bytes header;  ///< stands before the payload in the frame
    SharedView payload;
    [[nodiscard]] ByteCount frame_bytes() const { return header.size() + payload.bytes().size(); }
};
/// Whose payloads of which round; ordered so that the lowest step comes first.
struct OutKey {
    Step step = 0;
    Stream stream = 0;
    PeerIndex origin = 0;
    auto operator<=>(const OutKey&) const = default;
};

class Outbox {
public:
    explicit Outbox(JobContext& context);

    void add(PeerIndex to, const OutKey& key, OutRecord record);
    /// The local part of this round is complete: what was gathered of it leaves.
    void complete(PeerIndex to, const OutKey& key);
    /// Everything gathered leaves, as far as credit allows.
    void flush();

    void on_credit(PeerIndex from, Stream stream, Step step, ByteCount bytes);
    /// The peer needs nothing more of this stream up to `step`.
    void on_acknowledged(PeerIndex from, Stream stream, Step step);
    /// What was in flight is taken for lost, and what waits is dropped: the caller adds it all again.
    void forget(PeerIndex to, const OutKey& key);
    /// Nothing more goes to this peer.
    void drop(PeerIndex to);

    /// A data frame came in: credit goes back once half a window came together or the sender waits for it.
    void on_received(PeerIndex from, Stream stream, Step step, ByteCount payload_bytes, bool is_credit_wanted);
    /// We acknowledge this stream up to `step`, which returns its credit by itself.
    void on_own_acknowledgement(Stream stream, Step step);

    [[nodiscard]] ByteCount in_flight_bytes(PeerIndex to) const;
    [[nodiscard]] bool is_empty(PeerIndex to) const;

private:
    struct Queue {
        std::deque<OutRecord> records;
        ByteCount frame_bytes = 0;
        bool is_complete = false;  ///< leaves without waiting for more
    };
    struct Side {
        std::map<OutKey, Queue> queues;
        std::map<std::pair<Stream, Step>, ByteCount> in_flight;
        ByteCount in_flight_bytes = 0;
        bool is_reserve_used = false;
        std::map<std::pair<Stream, Step>, ByteCount> owed;  ///< received, credit not returned yet
        ByteCount owed_bytes = 0;
    };
    void pump(PeerIndex to);
    void release(Side& side, Stream stream, Step step, ByteCount bytes);
    bool fill_frame(PeerIndex to, const OutKey& key, Queue& queue);
    void send_reserved(PeerIndex to);
    void emit(PeerIndex to, const OutKey& key, std::vector<OutRecord> records, bool is_credit_wanted);
    void tell_watcher(PeerIndex to, const OutKey& key, const std::vector<OutRecord>& records, SendFrame& frame);

    JobContext& context_;
    BytePool frames_;          ///< of records that travel together
    std::vector<Side> sides_;  ///< by peer
};

}  // namespace gradsieve::exchange

// Rounds beside the steps: exact broadcasts from one rank to all, and comparisons of one digest per rank. Both are
// numbered by the callers, reliable until acknowledged, and independent of any group's step. One thread; owned by
// JobMachine.
#pragma once

#include "exchange/job_context.hpp"
#include "exchange/outbox.hpp"

#include <map>
#include <optional>
#include <set>

namespace gradsieve::exchange {

/// Which running numbers are over; forgets all but the newest.
class NumberLog {
public:
    [[nodiscard]] bool is_done(Step number) const { return number <= floor_ || done_.contains(number); }
    /// A number so far ahead that no honest peer can mean it.
    [[nodiscard]] bool is_absurd(Step number) const;
    void set_done(Step number);

private:
    Step floor_ = 0;       ///< all numbers up to this are over
    std::set<Step> done_;  ///< and these above it
};

class SideRounds {
public:
    SideRounds(JobContext& context, Outbox& outbox);

    // -- broadcasts (broadcasts.cpp) --
    [[nodiscard]] Status on_broadcast_requested(Rank rank, TensorNumber tensor, Step number, Rank root, TimePoint now);
    void on_broadcast_bytes(TensorNumber tensor, Step number, const SharedView& bytes, TimePoint now);
    void on_broadcast_ask(std::size_t from, Step number, const BroadcastAsk& ask, TimePoint now);
    void on_broadcast_piece(std::size_t from, Step number, const SharedView& body, TimePoint now);

    // -- checks (checks.cpp) --
    [[nodiscard]] Status on_check_requested(Rank rank, Step number, std::uint64_t digest, TimePoint now);
    void on_check(std::size_t from, Step number, const Check& check, TimePoint now);

    // -- both (side_rounds.cpp) --
    void on_ack(std::size_t from, Step number, Stream stream);
    void resend_to(std::size_t member);
    void on_members_changed();
    void on_time(TimePoint now);
    /// The job ends: whoever waits gets `status`.
    void end_open(const Status& status);
    /// The member has not acknowledged all that it needs of us.
    [[nodiscard]] bool owes(std::size_t member) const;
    [[nodiscard]] std::optional<TimePoint> waiting_since() const;
    /// Largest numbers that a local rank has asked for.
    [[nodiscard]] Step last_broadcast(Rank rank) const;
    [[nodiscard]] Step last_check(Rank rank) const;

private:
    struct Broadcast {
        std::optional<BroadcastAsk> ask;  ///< what our ranks want
        std::set<Rank> asked;
        std::map<std::size_t, BroadcastAsk> others;  ///< what the other nodes' ranks want, by member
        std::optional<BroadcastAsk> sent;            ///< what the arriving pieces belong to
        std::map<ByteCount, SharedView> pieces;      ///< by first byte
        ByteCount total_bytes = 0, arrived_bytes = 0;
        std::optional<SharedView> bytes;  ///< complete
        bool is_reading = false, is_delivered = false;
        std::set<std::size_t> acknowledged;  ///< root only, by member
        TimePoint opened_at{};
        std::optional<TimePoint> sent_at;  ///< root only
        bool has_resent = false;
    };
    struct Comparison {
        std::map<Rank, std::uint64_t> digests;
        std::set<Rank> asked;
        bool is_sent = false, is_delivered = false;
        std::set<std::size_t> acknowledged;
        TimePoint opened_at{};
        TimePoint sent_at{};
    };
    [[nodiscard]] bool has_all_local(const std::set<Rank>& asked) const;
    [[nodiscard]] bool has_all_acks(const std::set<std::size_t>& acknowledged) const;
    [[nodiscard]] Broadcast& broadcast(Step number, TimePoint now);
    [[nodiscard]] Comparison& comparison(Step number, TimePoint now);
    [[nodiscard]] std::optional<Status> doom_of_broadcast(Step number, const Broadcast& round) const;
    [[nodiscard]] std::optional<Status> doom_of_check(Step number, const Comparison& round) const;

    bool agrees(Step number, const BroadcastAsk& left, const BroadcastAsk& right);
    void take_piece(std::size_t from, Step number, const BroadcastPiece& piece, SharedView bytes, TimePoint now);
    void send_bytes(Step number, std::size_t member, const Broadcast& round);
    void send_check(Step number, std::size_t member, const Comparison& round);
    void send_ack(std::size_t member, Stream stream, Step number);
    void advance_broadcast(Step number);
    void advance_check(Step number);
    [[nodiscard]] Status compare(Step number, const Comparison& round) const;
    void check_time(Step number, Broadcast& round, TimePoint now);
    void forget_finished();

    JobContext& context_;
    Outbox& outbox_;
    std::map<Step, Broadcast> broadcasts_;
    std::map<Step, Comparison> checks_;
    NumberLog finished_broadcasts_, finished_checks_;
    std::map<Rank, Step> last_broadcast_, last_check_;
    std::optional<TimePoint> reported_at_;
};

}  // namespace gradsieve::exchange

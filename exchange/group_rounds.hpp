// The rounds of one group: every node sends its payload of every tensor to all members, and a step is done when all of
// them were decoded. Decides nothing about failed peers (that is the verdict's) and looks into no payload. One
// thread; owned by JobMachine. Payloads of a step are kept until all members have acknowledged it.
//
// A tensor may have two phases: payloads of the second are encoded once those of the first are decoded. Each is a
// payload of the step with everything that goes with one: records, completeness, fetches. Only the second gives the
// result. Under the sharded plan a first payload is scattered: each member gets the chunks of its shard, which nobody
// relays, since a member that has all second payloads has told everybody's first ones by them.
//
// A node starts to encode step t + 1 only after every member has acknowledged t: the pass overwrites the generation
// before t. So a record of step t + 1 also says that everybody is done with t, and nodes are at most one step apart.
#pragma once

#include "exchange/job_context.hpp"
#include "exchange/outbox.hpp"
#include "exchange/round.hpp"

#include <deque>
#include <map>

namespace gradsieve::exchange {

class GroupRounds {
public:
    GroupRounds(JobContext& context, Outbox& outbox, GroupNumber group);

    // -- local ranks and answers to actions (group_rounds.cpp) --
    [[nodiscard]] Status on_submitted(Rank rank, TensorNumber tensor, Step step, TimePoint now);
    void on_encoded(TensorNumber tensor, Step step, std::vector<std::pair<std::uint32_t, SharedView>> chunks,
                    TimePoint now);
    void on_encode_failed(TensorNumber tensor, Step step, const Status& status, TimePoint now);
    void on_decoded(TensorNumber tensor, Step step, std::uint64_t digest, const Status& status, TimePoint now);

    // -- members (group_rounds_peers.cpp) --
    void on_records(std::size_t from, std::size_t origin, Step step, const SharedView& body, std::size_t first_byte,
                    TimePoint now);
    void on_ack(std::size_t from, Step step, const Ack& ack, TimePoint now);
    void on_progress(std::size_t from, Step step, const Progress& progress, TimePoint now);
    void on_fetch(std::size_t from, Step step, const Fetch& fetch);
    /// The link is back: what may have been lost goes again.
    void resend_to(std::size_t member);
    /// Ranks have detached: an open step that needs them fails, and they owe no acknowledgement.
    void on_members_changed(TimePoint now);

    // -- time and deciding (group_rounds_deadlines.cpp) --
    void on_time(TimePoint now);
    /// Nothing of the open step ends here until `resume` or `end_open`.
    void freeze() { is_frozen_ = true; }
    /// The verdict: the open step counts; what is missing comes from `source`.
    void resume(std::size_t source, TimePoint now);
    /// The job ends: whoever waits for the open step gets `status`. Only the first call counts.
    void end_open(const Status& status);

    [[nodiscard]] Step done_step() const { return current_.step - 1; }
    [[nodiscard]] Step committed_step() const { return committed_; }
    /// All payloads of the open step are here, or a member that is done with it can be asked for them.
    [[nodiscard]] bool is_complete() const { return current_.is_complete() || member_done().has_value(); }
    /// All reachable members have acknowledged what ended here.
    [[nodiscard]] bool is_acknowledged() const;
    /// The member may still need a payload of ours.
    [[nodiscard]] bool owes(std::size_t member) const;
    /// Last step for which all samples of our ranks are coded.
    [[nodiscard]] Step last_coded_step() const;
    /// Since when somebody here waits for others.
    [[nodiscard]] std::optional<TimePoint> waiting_since() const { return current_.opened_at; }
    /// The open step still wants payloads of that member.
    [[nodiscard]] bool waits_for(std::size_t member) const {
        return current_.opened_at.has_value() && !current_.has_all_from(member);
    }
    [[nodiscard]] std::optional<RoundSnapshot> snapshot(TimePoint now) const;
    [[nodiscard]] ByteCount retained_bytes() const;

private:
    [[nodiscard]] Stream stream() const { return kFirstGroupStream + group_; }
    [[nodiscard]] Round new_round(Step step) const;
    [[nodiscard]] bool is_fatal(const Status& failure) const;
    [[nodiscard]] OutKey key(Step step, std::size_t origin) const;

    void open(TimePoint now);
    void advance_all(TimePoint now);
    void advance(std::uint32_t position, TimePoint now);
    void request_encode(std::uint32_t position);
    void request_decode(std::uint32_t position);
    void deliver(std::uint32_t position, TimePoint now);
    void finish_step(TimePoint now);
    void abort_step(const Status& status, TimePoint now);
    void fail_waiting(const Status& status);
    void close_round(TimePoint now);
    void send_record(std::size_t member, const OutKey& key, const Record& record);
    void send_own(PayloadNumber number, const std::vector<Record>& records);
    using Chunks = std::vector<std::pair<std::uint32_t, SharedView>>;
    [[nodiscard]] std::vector<Record> records_for(std::size_t member, PayloadNumber number, const Assembly& own) const;
    [[nodiscard]] Chunks chunks_for(std::size_t member, PayloadNumber number, const Assembly& assembly) const;
    [[nodiscard]] std::uint32_t take_unanswered(std::vector<bool>& inout_flags, TensorNumber tensor) const;
    [[nodiscard]] bool is_at_work(TensorNumber tensor) const;
    [[nodiscard]] std::optional<Status> failure_of(PayloadNumber second, const TensorRound& first) const;

    [[nodiscard]] bool is_sound(const Record& record, std::size_t origin) const;
    void take_late(std::size_t from, std::size_t origin, Step step);
    void infer_done(std::size_t member, Step step);
    void compare_digests(Round& round, std::size_t member);
    void release_retained(TimePoint now);
    [[nodiscard]] Round* round_of(Step step);
    void send_ack(PeerIndex to) const;
    void send_progress(std::optional<std::size_t> only_to, bool is_reply);
    void send_fetches();
    void fetch_from_origins();
    void check_deadlines(TimePoint now);
    [[nodiscard]] std::optional<std::size_t> member_done() const;
    [[nodiscard]] std::string missing_text() const;
    [[nodiscard]] std::vector<Rank> late_local_ranks() const;

    JobContext& context_;
    Outbox& outbox_;
    const GroupNumber group_;
    Round current_;
    std::deque<Round> retained_;     ///< done here, not yet acknowledged by all
    std::vector<bool> is_encoding_;  ///< by position: an EncodeTensor is unanswered, maybe of an aborted step
    std::vector<bool> is_decoding_;
    std::size_t encoded_ = 0;  ///< payloads of the open step
    std::size_t decoded_ = 0;
    std::map<Step, Status> aborted_;  ///< what ranks get that hand in late for a step that failed
    std::optional<Ack> last_ack_;     ///< of done_step()
    Step committed_ = 0;
    bool is_frozen_ = false;
    bool is_ended_ = false;
    std::optional<std::size_t> source_;  ///< after a verdict: who has what is missing; relays are taken
};

}  // namespace gradsieve::exchange

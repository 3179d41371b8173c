// One job on one node as a pure state machine: formation, rounds, acknowledgements, digests, verdicts,
// broadcasts and checks. It sees time only as an argument, peers only as indices, payloads only as opaque bytes, and
// answers with actions that the hall carries out. Whoever owns it calls it from one thread. Protocol:
// docs/wire-format-jobs.md.
#pragma once

#include "base/clock.hpp"
#include "base/id.hpp"
#include "base/shared_view.hpp"
#include "base/status.hpp"
#include "exchange/job_spec.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace gradsieve::exchange {

using TensorNumber = std::uint32_t;  ///< position in JobSpec::tensors
using GroupNumber = std::uint32_t;   ///< position in the sorted list of distinct group names

struct JobTimes {
    Duration round_deadline = std::chrono::seconds(60);  ///< from when all live ranks have submitted; measures links
    Duration peer_timeout = std::chrono::seconds(60);    ///< from named (closed or silent) to failed
    Duration announce_every =
        std::chrono::seconds(1);       ///< Prepared before the start; Progress of a round open that long
    std::optional<Duration> max_late;  ///< a live rank may be late that long; none = without limit
};
struct JobLimits {
    ByteCount credit_bytes = ByteCount{64} << 20U;         ///< payload bytes in flight towards one peer
    ByteCount frame_target_bytes = ByteCount{256} << 10U;  ///< records are gathered into frames of about this size
};
struct NodeName {
    std::string name;
    std::string address;
};

// ---- actions: what the machine wants done, in order ----
struct SendFrame {  ///< hand to the transport
    PeerIndex to = 0;
    bool is_bulk = false;  ///< data lane
    std::uint16_t type = 0;
    Epoch epoch = 0;
    Step step = 0;
    std::vector<SharedView> parts;
    std::uint64_t number = 0;  ///< while somebody watches, of data frames: counts from 1
    /// Of our own payloads, if `to` is asked to answer at once when it has them (credited_bytes); else 0.
    ByteCount answered_bytes = 0;
};
struct Member {
    PeerIndex peer = 0;
    std::vector<Rank> ranks;  ///< ascending
};
struct StartJob {  ///< all ranks are there and agree
    Epoch epoch = 0;
    std::vector<Member> members;    ///< in node order: ascending by lowest rank; the order of summation
    std::vector<Step> first_steps;  ///< per group: 1, or the one after the step that every node's kept state holds
    /// Per group: why it begins anew although this node kept state of it; empty if it goes on, or nothing was kept.
    std::vector<std::string> lost_reasons;
    std::vector<Step> named_steps = {};  ///< per group: the step that somebody named to go on from; 0 = none
};
/// All local ranks' samples are in, and the generation to overwrite is free; in the second phase of a tensor that has
/// two (TensorSpec::phases), the first has been decoded. A tensor has one of these unanswered at a time.
struct EncodeTensor {
    TensorNumber tensor = 0;
    Step step = 0;
    std::uint8_t phase = 0;
};
struct NodePayload {
    PeerIndex peer = 0;
    std::vector<std::pair<std::uint32_t, SharedView>> chunks;  ///< (chunk index, bytes), ascending
};
struct DecodeTensor {  ///< every member's payload of this tensor is here; one of a tensor unanswered at a time
    TensorNumber tensor = 0;
    Step step = 0;
    std::vector<NodePayload> payloads;  ///< in node order, one per member
    std::uint8_t phase = 0;             ///< the first of two leaves no result yet
};
struct DeliverResult {  ///< tell the local ranks (kOk: the result area holds it)
    TensorNumber tensor = 0;
    Step step = 0;
    Status status;
    bool fill_not_a_number = false;  ///< policy skip-step: the hall fills the tensor with NaN first
};
struct CommitStep {  ///< flip the group's generation; comes before the step's last DeliverResult
    GroupNumber group = 0;
    Step step = 0;
};
struct AbortStep {  ///< leave the generation where it was; the step number is used up
    GroupNumber group = 0;
    Step step = 0;
    Status status;
};
struct DeliverBroadcast {  ///< exact bytes of root's slice; the hall copies them into the result area
    TensorNumber tensor = 0;
    Step number = 0;
    SharedView bytes;
    Status status;
};
struct ReadBroadcast {  ///< root is local: the hall answers with on_broadcast_bytes
    TensorNumber tensor = 0;
    Step number = 0;
    Rank root = 0;
};
struct DeliverCheck {
    Step number = 0;
    Status status;  ///< kMismatch names the ranks that differ
};
/// One node's part of a snapshot that was asked for.
struct SnapshotOutcome {
    Status status = {};
    std::uint64_t digest = 0;  ///< of its values
    ByteCount bytes = 0;       ///< of its values
};
/// Keep a snapshot of that step until it is let go; answered with on_snapshot_saved. The step is committed here, or the
/// one before the committed one, or the open one, whose outcome is to be waited for.
struct SaveSnapshot {
    GroupNumber group = 0;
    Step step = 0;
};
struct SnapshotKept {  ///< every member has it: older ones may go
    GroupNumber group = 0;
    Step step = 0;
};
struct DeliverSnapshot {  ///< tell whoever asked
    GroupNumber group = 0;
    Step step = 0;
    Status status;
    std::vector<SnapshotOutcome> parts;  ///< by member, if all have it
};
/// Every wait of a local rank has been answered; kOk = all ranks detached. The machine can be dropped. As long as it is
/// kept and fed, it answers peers that missed the end with SendFrame (take_actions, few at a time), and does nothing
/// else.
struct EndJob {
    Status status;
};
using Action =
    std::variant<SendFrame, StartJob, EncodeTensor, DecodeTensor, DeliverResult, CommitStep, AbortStep,
                 DeliverBroadcast, ReadBroadcast, DeliverCheck, SaveSnapshot, SnapshotKept, DeliverSnapshot, EndJob>;

/// What an earlier life of the job left on this node.
struct KeptState {
    std::vector<Rank> ranks;            ///< ascending; no others can go on from it
    std::vector<KeptSteps> steps = {};  ///< per group
    /// Steps that are gone on from only if somebody names them: of pinned snapshots.
    struct Named {
        GroupNumber group = 0;
        Step step = 0;
        std::vector<Rank> ranks;  ///< ascending; no others can go on from it
        Epoch epoch = 0;          ///< as KeptSteps::epochs
    };
    std::vector<Named> named = {};
    /// Per group: the step that this node's ranks, or its user, name to go on from; 0 or missing = none.
    std::vector<Step> wanted = {};
    /// Per group: nothing is kept of it, so that it can go on from every step.
    std::vector<bool> is_stateless = {};
};

enum class LinkState : std::uint8_t { kUp, kSilent, kClosed };

/// For status: who waits for whom.
struct RoundSnapshot {
    GroupNumber group = 0;
    Step step = 0;
    Duration open_for{};
    std::vector<Rank> ranks_not_submitted;    ///< local and, as far as Progress told, remote
    std::vector<PeerIndex> peers_waited_for;  ///< payloads outstanding
    TensorNumber first_missing_tensor = 0;
};
struct JobSnapshot {
    std::string phase;  ///< "forming", "running", "deciding", "leaving", "ended"
    Epoch epoch = 0;
    std::vector<Member> members;
    std::vector<Rank> missing_ranks;    ///< while forming
    std::vector<Step> committed_steps;  ///< per group
    std::vector<RoundSnapshot> open_rounds;
    std::uint64_t steps_committed = 0, steps_aborted = 0, digests_compared = 0, digests_different = 0;
    std::uint64_t frames_refused = 0;  ///< wrong epoch, malformed body
    std::uint64_t payload_bytes_retained = 0;
    std::string last_refusal;
};

class RoundWatcher;

class JobMachine {
public:
    JobMachine(JobKey key, PeerIndex self, std::vector<NodeName> nodes, const JobTimes& times, const JobLimits& limits,
               std::uint64_t epoch_seed);
    JobMachine(JobMachine&&) noexcept;
    JobMachine& operator=(JobMachine&&) noexcept;
    ~JobMachine();

    /// Before the first rank attaches: the job may go on from that state. Whether it does, and from which step, is what
    /// all nodes agree on; StartJob tells.
    void offer_state(KeptState kept);

    // -- local ranks --
    /// Errors: kAlreadyExists (rank taken), kInvalidArgument (rank >= world size), kMismatch (differs from the job's
    /// other local ranks), kFailedPrecondition (the job has started or ended).
    [[nodiscard]] Status on_rank_attached(Rank rank, const JobSpec& spec, TimePoint now);
    /// `is_clean`: it detached; else it died and every rank of the job gets an error with `text` in it.
    void on_rank_left(Rank rank, bool is_clean, const std::string& text, TimePoint now);
    /// Errors: kInvalidArgument (unknown tensor, or not the group's next step; which is), kBusy (already handed in, or
    /// the step before it is still open); the step's own status if it failed before this rank handed in (kNonFinite,
    /// ...); kPeerFailed (a rank that the step needs has detached); what the job ends with once that is known. After an
    /// error no DeliverResult follows for this hand-in.
    [[nodiscard]] Status on_submitted(Rank rank, TensorNumber tensor, Step step, TimePoint now);
    [[nodiscard]] Status on_broadcast_requested(Rank rank, TensorNumber tensor, Step number, Rank root, TimePoint now);
    [[nodiscard]] Status on_check_requested(Rank rank, Step number, std::uint64_t digest, TimePoint now);

    /// Somebody on this node wants a snapshot of a committed step kept on every node. Errors: kFailedPrecondition (the
    /// job does not run), kInvalidArgument (no such group), kBusy; else DeliverSnapshot follows.
    [[nodiscard]] Status on_snapshot_requested(GroupNumber group, Step step, TimePoint now);

    // -- answers to actions --
    void on_snapshot_saved(GroupNumber group, Step step, const SnapshotOutcome& outcome, TimePoint now);
    /// Of the phase that was asked for last.
    void on_encoded(TensorNumber tensor, Step step, std::vector<std::pair<std::uint32_t, SharedView>> chunks,
                    TimePoint now);
    /// Encoding failed, or found a NaN or infinity (`code` kNonFinite; text names tensor and rank).
    void on_encode_failed(TensorNumber tensor, Step step, const Status& status, TimePoint now);
    /// `digest`: of the result; 0 after the first phase of two.
    void on_decoded(TensorNumber tensor, Step step, std::uint64_t digest, const Status& status, TimePoint now);
    void on_broadcast_bytes(TensorNumber tensor, Step number, SharedView bytes, TimePoint now);

    // -- peers --
    /// A frame for this job (see `job_of_frame`). Malformed or stale bodies are counted and named, never fatal.
    void on_frame(PeerIndex from, std::uint16_t type, Epoch epoch, Step step, const SharedView& body, TimePoint now);
    /// News of the link to a node, also once for the present state of every link right after construction.
    void on_link(PeerIndex peer, LinkState state, std::uint64_t instance, const std::string& text, TimePoint now);

    void on_time(TimePoint now);
    /// Nothing more is at hand right now: records gathered so far leave.
    void flush();
    [[nodiscard]] std::vector<Action> take_actions();
    /// Tells `watcher` what payloads do from here on; null: nobody. It outlives the machine, or is taken back.
    void set_watcher(RoundWatcher* watcher) noexcept;
    /// From here on, peers answer every frame of our own payloads when it has arrived, whatever their ranks do, so that
    /// links can be measured; off at first.
    void ask_for_answers(bool are_wanted) noexcept;
    [[nodiscard]] bool is_ended() const noexcept;
    [[nodiscard]] JobSnapshot snapshot(TimePoint now) const;
    [[nodiscard]] const JobKey& key() const noexcept;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// The job a frame belongs to: every body starts with the 64-bit hash of the job key.
[[nodiscard]] std::uint64_t job_hash(const JobKey& key) noexcept;
[[nodiscard]] std::optional<std::uint64_t> job_of_frame(ByteView body) noexcept;
/// Payload bytes that a frame of that type says have arrived at its sender; nothing if it says nothing of the kind.
[[nodiscard]] std::optional<ByteCount> credited_bytes(std::uint16_t type, ByteView body) noexcept;
/// Announcements go to every machine, whatever job they name: a second live run of a job's name is refused there.
[[nodiscard]] bool is_for_every_job(std::uint16_t type) noexcept;
/// "prepared", "records", ...; "unknown (99)".
[[nodiscard]] std::string frame_type_name(std::uint16_t type);

}  // namespace gradsieve::exchange

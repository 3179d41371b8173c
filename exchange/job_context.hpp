// What the parts of one job's machine share: who we are, what was agreed, how the peers stand, and the actions and
// findings they leave behind. Plain state without rules of its own; owned by JobMachine, used by its one thread.
#pragma once

#include "exchange/job_machine.hpp"
#include "exchange/messages.hpp"
#include "exchange/round_watcher.hpp"
#include "exchange/shards.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace gradsieve::exchange {

/// Which payload of a node: see JobContext::group_of.
using PayloadNumber = std::uint32_t;

/// How one node of the configuration stands, as far as this job knows.
struct Peer {
    LinkState link = LinkState::kUp;
    TimePoint down_since{};  ///< valid while the link is not up
    TimePoint up_since{};
    std::string down_text;                  ///< cause in the transport's words
    std::optional<std::uint64_t> instance;  ///< of its daemon; nothing before the first news of the link
    std::optional<TimePoint> last_heard;    ///< last frame of this epoch
    bool is_failed = false;
};

struct JobContext {
    // constant after construction
    JobKey key;
    std::uint64_t hash = 0;
    PeerIndex self = 0;
    std::vector<NodeName> nodes;
    JobTimes times;
    JobLimits limits;
    std::uint64_t nonce = 0;  ///< one life of this machine

    // constant once the first local rank has attached
    JobSpec spec;
    std::vector<std::string> groups;
    // Numbers of payloads on the wire: a tensor's own, and behind those of all tensors the second phases, in the
    // tensors' order.
    std::vector<GroupNumber> group_of;                    ///< by payload
    std::vector<std::uint32_t> position_of;               ///< by payload: its place in its group
    std::vector<std::vector<PayloadNumber>> payloads_of;  ///< by group; second phases behind all tensors
    std::vector<TensorNumber> two_phased;                 ///< tensors with two phases, ascending
    std::vector<std::optional<PayloadNumber>> second_of;  ///< by tensor: the number of its second phase

    // constant once started
    Epoch epoch = 0;
    std::vector<Member> members;         ///< in node order
    std::vector<Step> first_steps;       ///< by group
    std::size_t own = 0;                 ///< our place in `members`
    std::vector<ChunkOwners> owners_of;  ///< by tensor

    // changes with events
    std::vector<Peer> peers;              ///< by PeerIndex
    std::map<Rank, Detachment> detached;  ///< ranks that left cleanly, on any node
    std::vector<Action> actions;
    RoundWatcher* watcher = nullptr;  ///< nobody, mostly
    std::uint64_t frames_watched = 0;
    bool are_answers_wanted = false;     ///< of frames of our own payloads
    std::optional<Complaint> complaint;  ///< found by a part: the nodes must decide together
    std::optional<Status> failure;       ///< found by a part: the job ends at once, on every node
    std::uint64_t frames_refused = 0;
    std::string last_refusal;
    std::uint64_t steps_committed = 0, steps_aborted = 0, digests_compared = 0, digests_different = 0;

    void set_spec(const JobSpec& agreed);
    [[nodiscard]] std::string node_text(PeerIndex peer) const;  ///< "node b"
    [[nodiscard]] std::string rank_text(Rank rank) const;       ///< "rank 3 on node b"
    /// "tensor 'fc.weight'"; "the second phase of tensor 'fc.weight'".
    [[nodiscard]] std::string tensor_text(PayloadNumber payload) const;
    [[nodiscard]] TensorNumber tensor_of(PayloadNumber payload) const {
        return is_second(payload) ? two_phased[payload - spec.tensors.size()] : payload;
    }
    [[nodiscard]] bool is_second(PayloadNumber payload) const { return payload >= spec.tensors.size(); }
    /// Its decoding is the tensor's result.
    [[nodiscard]] bool is_final(PayloadNumber payload) const { return is_second(payload) || !second_of[payload]; }
    /// Each member gets chunks of its own of a node's payload.
    [[nodiscard]] bool is_scattered(PayloadNumber payload) const {
        return !is_second(payload) && !owners_of[payload].empty();
    }
    /// Whether a member gets that chunk of a payload; of a chunk that the tensor does not have, nobody.
    [[nodiscard]] bool is_for(PayloadNumber payload, std::uint32_t chunk, std::size_t member) const;
    /// Whether a member's payload may have that chunk, one that the tensor has: of a shard's second payload, the
    /// owner's.
    [[nodiscard]] bool is_of(PayloadNumber payload, std::uint32_t chunk, std::size_t member) const;
    [[nodiscard]] std::string step_text(GroupNumber group, Step step) const;  ///< "step 7 of group 'g'"
    [[nodiscard]] std::optional<std::size_t> member_of(PeerIndex peer) const;
    [[nodiscard]] std::optional<std::size_t> member_with(Rank rank) const;
    /// A member that is expected to take part: neither failed nor gone with all of its ranks. Our own counts as active.
    [[nodiscard]] bool is_active(std::size_t member) const;
    [[nodiscard]] bool is_gone(std::size_t member) const;

    void send(PeerIndex to, FrameType type, Step step, Bytes body);
    /// Outside any epoch: announcements and refusals of a job that has not started.
    void send_announcement(PeerIndex to, FrameType type, Bytes body);
    /// Not failed: it may still be there to answer, even if its ranks have gone.
    [[nodiscard]] bool is_reachable(std::size_t member) const;
    /// To every member but ourselves, failed ones and `except`.
    void send_to_members(FrameType type, Step step, const Bytes& body, std::optional<PeerIndex> except = std::nullopt);
    /// Counts a frame that was not taken, and remembers why.
    void refuse(PeerIndex from, const std::string& why);
    /// The first finding wins.
    void complain(StatusCode code, std::string text, std::vector<PeerIndex> failed = {});
    void fail(StatusCode code, std::string text);
};

/// The status of an ended or failing step from a rank's view, e.g. for a rank that left: nothing if `step` can be done.
[[nodiscard]] std::optional<Status> doom_of_step(const JobContext& context, GroupNumber group, Step step);

}  // namespace gradsieve::exchange

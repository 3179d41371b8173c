// From the first attached rank to the common start: announces the local ranks to every node, collects the others'
// announcements, finds the first difference, and lets the node of rank 0 start the job. One thread; owned by
// JobMachine.
#pragma once

#include "exchange/job_context.hpp"

#include <optional>
#include <set>
#include <vector>

namespace gradsieve::exchange {

class Formation {
public:
    explicit Formation(JobContext& context);

    void offer_state(KeptState kept) { kept_ = std::move(kept); }

    /// Errors: as JobMachine::on_rank_attached.
    [[nodiscard]] Status attach(Rank rank, const JobSpec& spec);
    /// False if the rank was not attached.
    bool detach(Rank rank);
    [[nodiscard]] const std::set<Rank>& local_ranks() const { return ranks_; }

    /// Sends our announcement to one node, or to all; also after the start, as an answer.
    void announce(PeerIndex to);
    void announce_to_all(TimePoint now);
    void on_time(TimePoint now);
    void on_prepared(PeerIndex from, Prepared prepared, TimePoint now);
    /// The node's daemon is gone, and its ranks with it.
    void forget(PeerIndex peer);

    /// After the start: an announcement of a machine that was never heard of, so the sender began anew.
    [[nodiscard]] bool is_new_life(PeerIndex from, const Prepared& prepared) const;
    /// After the start: later than what the start was made from.
    [[nodiscard]] bool is_news(PeerIndex from, const Prepared& prepared) const;

    /// The start message if all ranks are there, all nodes agree and rank 0 is here. Leaves a finding in the context if
    /// nodes differ.
    [[nodiscard]] std::optional<Start> try_start(TimePoint now);
    /// Errors: kCorrupt (no possible start), kFailedPrecondition (not what we announced: a rank of ours has left).
    [[nodiscard]] Status check_start(const Start& start) const;
    /// Ranks of the job that no node has announced yet.
    [[nodiscard]] std::vector<Rank> missing_ranks() const;
    [[nodiscard]] std::uint64_t spec_digest() const;
    /// Why `group` begins anew although we kept state of it, in words; empty if we kept none.
    [[nodiscard]] std::string lost_reason(const Start& start, GroupNumber group) const;
    /// The step that somebody, on any node, named to go on from; 0 = none.
    [[nodiscard]] Step wanted_step(GroupNumber group) const;

private:
    struct Announced {
        Prepared prepared;
        TimePoint at{};
    };
    [[nodiscard]] Prepared own() const;
    [[nodiscard]] Step first_step(const Start& start, GroupNumber group) const;
    [[nodiscard]] const std::vector<KeptSteps>* kept_on(PeerIndex peer) const;
    [[nodiscard]] bool is_settled_duplicate(PeerIndex peer, TimePoint now);
    void find_differences(PeerIndex from, const Prepared& prepared);
    /// Takes over what another node names to go on from; true if that is news.
    [[nodiscard]] bool adopt(const Prepared& prepared);
    [[nodiscard]] KeptSteps steps_to_announce(GroupNumber group) const;
    /// Every member can go on from what is named. False: not yet known. Leaves a finding in the context if one cannot.
    [[nodiscard]] bool can_go_on(const Start& start);

    JobContext& context_;
    KeptState kept_;
    std::vector<Step> adopted_;  ///< by group: what other nodes name; 0 or missing = nothing
    std::set<Rank> ranks_;
    std::uint64_t sequence_ = 0;
    std::optional<TimePoint> announced_at_;
    std::vector<std::optional<Announced>> others_;         ///< by peer
    std::set<std::pair<PeerIndex, std::uint64_t>> lives_;  ///< all machines heard of: late announcements are not new
    std::optional<TimePoint> duplicate_since_;
};

}  // namespace gradsieve::exchange

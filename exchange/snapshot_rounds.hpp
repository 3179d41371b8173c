// Snapshots that somebody asked for: one of a group's committed step on every member, answered once all of them have
// it. Whoever is asked first asks the others again and again until they have answered. One thread; owned by JobMachine.
#pragma once

#include "exchange/job_context.hpp"

#include <map>
#include <optional>
#include <set>

namespace gradsieve::exchange {

/// Asked for and not answered yet, in one job.
inline constexpr std::size_t kSnapshotRoundsLimit = 16;

class SnapshotRounds {
public:
    explicit SnapshotRounds(JobContext& context) : context_(context) {}

    /// Errors: kInvalidArgument (no such group), kBusy (kSnapshotRoundsLimit are open). Else DeliverSnapshot follows.
    [[nodiscard]] Status on_requested(GroupNumber group, Step step, TimePoint now);
    /// The answer to SaveSnapshot.
    void on_saved(GroupNumber group, Step step, const SnapshotOutcome& outcome, TimePoint now);

    void on_ask(std::size_t from, Step step, const SnapshotAsk& ask, TimePoint now);
    void on_answer(std::size_t from, Step step, const SnapshotAnswer& answer);
    void on_kept(std::size_t from, Step step, const SnapshotAsk& ask);

    void resend_to(std::size_t member);
    void on_time(TimePoint now);
    /// The job ends: whoever waits gets `status`.
    void end_open(const Status& status);

private:
    using Key = std::pair<GroupNumber, Step>;
    struct Round {
        bool is_wanted = false;                           ///< by somebody on this node
        bool is_saving = false;                           ///< SaveSnapshot is out
        std::optional<SnapshotOutcome> own;               ///< of this node
        std::map<std::size_t, SnapshotOutcome> outcomes;  ///< of the others, by member
        std::set<std::size_t> askers;                     ///< members that wait for ours
        TimePoint opened_at{}, asked_at{};
    };
    [[nodiscard]] Result<Round*> round(GroupNumber group, Step step, TimePoint now);
    void save(const Key& key, Round& inout_round);
    void ask(const Key& key, std::size_t member);
    void answer(const Key& key, std::size_t member, const SnapshotOutcome& outcome);
    void advance(const Key& key);
    void deliver(const Key& key, Status status);

    JobContext& context_;
    std::map<Key, Round> rounds_;
};

}  // namespace gradsieve::exchange

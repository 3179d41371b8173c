#include "exchange/snapshot_rounds.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

/// How long a member whose ranks have all detached may still answer.
constexpr Duration kLingerAtMost = std::chrono::seconds(2);

}  // namespace

/// Rounds that are over stay until their place is needed: a repeated question is answered from there.
Result<SnapshotRounds::Round*> SnapshotRounds::round(GroupNumber group, Step step, TimePoint now) {
    if (const auto found = rounds_.find({group, step}); found != rounds_.end()) return &found->second;
    const auto is_over = [](const auto& entry) { return !entry.second.is_wanted && entry.second.own; };
    while (rounds_.size() >= kSnapshotRoundsLimit) {
        auto oldest = rounds_.end();
        for (auto entry = rounds_.begin(); entry != rounds_.end(); ++entry)
            if (is_over(*entry) && (oldest == rounds_.end() || entry->second.opened_at < oldest->second.opened_at))
                oldest = entry;
        if (oldest == rounds_.end())
            return Status(StatusCode::kBusy,
                          "snapshot of " + context_.step_text(group, step) + ": " + std::to_string(rounds_.size()) +
                              " are being made: allowed is one after the other; try again in a moment");
        rounds_.erase(oldest);
    }
    auto& made = rounds_[{group, step}];
    made.opened_at = now;
    return &made;
}

Status SnapshotRounds::on_requested(GroupNumber group, Step step, TimePoint now) {
    GRADSIEVE_ASSIGN(auto* wanted, round(group, step, now));
    if (wanted->is_wanted) return {};
    wanted->is_wanted = true;
    wanted->opened_at = wanted->asked_at = now;
    wanted->outcomes.clear();
    for (std::size_t member = 0; member < context_.members.size(); ++member) ask({group, step}, member);
    save({group, step}, *wanted);
    return {};
}

/// The hall looks again even if it has saved this step before: the file may be gone.
void SnapshotRounds::save(const Key& key, Round& inout_round) {
    if (inout_round.is_saving) return;
    inout_round.is_saving = true;
    inout_round.own.reset();
    context_.actions.emplace_back(SaveSnapshot{.group = key.first, .step = key.second});
}

void SnapshotRounds::on_saved(GroupNumber group, Step step, const SnapshotOutcome& outcome, TimePoint) {
    const auto found = rounds_.find({group, step});
    if (found == rounds_.end() || !found->second.is_saving) return;
    auto& saved = found->second;
    saved.is_saving = false;
    saved.own = outcome;
    for (const auto member : std::exchange(saved.askers, {})) answer({group, step}, member, outcome);
    advance({group, step});
}

void SnapshotRounds::ask(const Key& key, std::size_t member) {
    if (member == context_.own || !context_.is_reachable(member)) return;
    context_.send(context_.members[member].peer, FrameType::kSnapshotAsk, key.second,
                  build_message(context_.hash, SnapshotAsk{.group = key.first}));
}

void SnapshotRounds::answer(const Key& key, std::size_t member, const SnapshotOutcome& outcome) {
    context_.send(context_.members[member].peer, FrameType::kSnapshotAnswer, key.second,
                  build_message(context_.hash,
                                SnapshotAnswer{.group = key.first,
                                               .reason = {.code = outcome.status.code(), .text = outcome.status.text()},
                                               .digest = outcome.digest,
                                               .bytes = outcome.bytes}));
}

void SnapshotRounds::on_ask(std::size_t from, Step step, const SnapshotAsk& ask, TimePoint now) {
    const auto peer = context_.members[from].peer;
    if (ask.group >= context_.groups.size() || step == 0)
        return context_.refuse(peer, "snapshot-ask for a group that is not in the job, or step 0");
    const auto asked = round(ask.group, step, now);
    if (!asked.is_ok()) return answer({ask.group, step}, from, {.status = asked.error()});
    auto& known = **asked;
    if (known.own && !known.is_wanted && now - known.opened_at >= context_.times.announce_every) {
        known.opened_at = now;  // a question of its own, not a repetition
        known.own.reset();
    }
    if (known.own) return answer({ask.group, step}, from, *known.own);
    known.askers.insert(from);
    save({ask.group, step}, known);
}

void SnapshotRounds::on_answer(std::size_t from, Step step, const SnapshotAnswer& answer) {
    const auto found = rounds_.find({answer.group, step});
    if (found == rounds_.end() || !found->second.is_wanted) return;
    found->second.outcomes[from] = {.status = answer.reason.status(), .digest = answer.digest, .bytes = answer.bytes};
    advance({answer.group, step});
}

void SnapshotRounds::on_kept(std::size_t from, Step step, const SnapshotAsk& ask) {
    if (ask.group >= context_.groups.size())
        return context_.refuse(context_.members[from].peer, "snapshot-kept for a group that is not in the job");
    context_.actions.emplace_back(SnapshotKept{.group = ask.group, .step = step});
}

void SnapshotRounds::advance(const Key& key) {
    auto& round = rounds_.at(key);
    if (!round.is_wanted) return;
    const auto failed = [&](std::size_t member, const Status& status) {
        deliver(key, status.with_context(context_.node_text(context_.members[member].peer)));
    };
    if (round.own && !round.own->status.is_ok()) return failed(context_.own, round.own->status);
    for (const auto& [member, outcome] : round.outcomes)
        if (!outcome.status.is_ok()) return failed(member, outcome.status);
    if (!round.own || round.outcomes.size() + 1 < context_.members.size()) return;
    for (std::size_t member = 0; member < context_.members.size(); ++member)
        if (member != context_.own && context_.is_reachable(member))
            context_.send(context_.members[member].peer, FrameType::kSnapshotKept, key.second,
                          build_message(context_.hash, SnapshotAsk{.group = key.first}));
    context_.actions.emplace_back(SnapshotKept{.group = key.first, .step = key.second});
    deliver(key, {});
}

void SnapshotRounds::deliver(const Key& key, Status status) {
    auto& round = rounds_.at(key);
    round.is_wanted = false;
    DeliverSnapshot action{.group = key.first, .step = key.second, .status = std::move(status), .parts = {}};
    for (std::size_t member = 0; member < context_.members.size() && action.status.is_ok(); ++member)
        action.parts.push_back(member == context_.own ? *round.own : round.outcomes.at(member));
    context_.actions.emplace_back(std::move(action));
}

void SnapshotRounds::resend_to(std::size_t member) {
    for (const auto& [key, round] : rounds_)
        if (round.is_wanted && !round.outcomes.contains(member)) ask(key, member);
}

void SnapshotRounds::on_time(TimePoint now) {
    std::vector<std::pair<Key, std::size_t>> silent;
    for (auto& [key, round] : rounds_) {
        if (!round.is_wanted || now - round.asked_at < context_.times.announce_every) continue;
        round.asked_at = now;
        for (std::size_t member = 0; member < context_.members.size(); ++member) {
            if (member == context_.own || round.outcomes.contains(member)) continue;
            ask(key, member);
            if (!context_.is_active(member) && now - round.opened_at >= kLingerAtMost) silent.emplace_back(key, member);
        }
    }
    for (const auto& [key, member] : silent) {
        if (!rounds_.at(key).is_wanted) continue;
        deliver(key,
                {StatusCode::kFailedPrecondition,
                 context_.node_text(context_.members[member].peer) +
                     ": it does not answer, and all of its ranks have "
                     "detached or its daemon is gone: a snapshot needs every node; ask for it before ranks detach"});
    }
}

void SnapshotRounds::end_open(const Status& status) {
    const auto reason = status.is_ok() ? Status(StatusCode::kCancelled,
                                                "the job has ended: a snapshot is made of a job that runs; ask before "
                                                "its ranks detach")
                                       : status;
    for (auto& [key, round] : rounds_)
        if (round.is_wanted) deliver(key, reason);
}

}  // namespace gradsieve::exchange

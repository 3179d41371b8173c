// A group's rounds under time and verdicts: progress reports, deadlines, freezing, status. One thread; owned by
// JobMachine.
#include "exchange/group_rounds.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

std::string seconds_text(Duration duration) {
    const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count() / 100;
    const auto whole = std::to_string(tenths / 10);
    return (tenths % 10 == 0 ? whole : whole + "." + std::to_string(tenths % 10)) + " s";
}

}  // namespace

void GroupRounds::on_time(TimePoint now) {
    if (!current_.opened_at) return;
    if (now - *current_.opened_at < context_.times.announce_every) return;
    if (!current_.reported_at || now - *current_.reported_at >= context_.times.announce_every) {
        current_.reported_at = now;
        send_progress(std::nullopt, false);
        if (source_) send_fetches();
    }
    if (!is_frozen_) check_deadlines(now);
}

void GroupRounds::send_progress(std::optional<std::size_t> only_to, bool is_reply) {
    const Progress progress{.stream = stream(),
                            .is_submitted = current_.is_submitted(),
                            .is_complete = current_.is_complete(),
                            .is_reply = is_reply,
                            .late_ranks = late_local_ranks()};
    const auto body = build_message(context_.hash, progress);
    if (only_to)
        context_.send(context_.members[*only_to].peer, FrameType::kProgress, current_.step, body);
    else
        context_.send_to_members(FrameType::kProgress, current_.step, body);
}

std::vector<Rank> GroupRounds::late_local_ranks() const {
    std::vector<Rank> late;
    const auto& ranks = context_.members[context_.own].ranks;
    for (std::size_t local = 0; local < ranks.size(); ++local)
        if (std::ranges::any_of(current_.payloads, [local](const auto& payload) {
                return !payload.submitted.empty() && !payload.submitted[local];
            }))
            late.push_back(ranks[local]);
    return late;
}

/// The deadline runs from when all live ranks have handed in, so it measures links and nodes, not training.
void GroupRounds::check_deadlines(TimePoint now) {
    const auto late = late_local_ranks();
    if (context_.times.max_late && !late.empty() && now - *current_.opened_at > *context_.times.max_late)
        return context_.complain(StatusCode::kTimeout,
                                 context_.step_text(group_, current_.step) + ": " + context_.rank_text(late.front()) +
                                     " is late by more than max_late_s (" + seconds_text(*context_.times.max_late) +
                                     "): raise it, or leave it out to wait without limit");
    if (!current_.submitted_at) {
        if (!late.empty()) return;
        for (std::size_t member = 0; member < context_.members.size(); ++member)
            if (member != context_.own && !current_.progress[member].is_submitted && !current_.has_all_from(member) &&
                !context_.is_gone(member))
                return;
        current_.submitted_at = now;
    }
    const auto waited = now - *current_.submitted_at;
    if (waited >= context_.times.round_deadline && !current_.has_fetched) {
        current_.has_fetched = true;
        fetch_from_origins();
    }
    if (waited >= 2 * context_.times.round_deadline)
        context_.complain(StatusCode::kTimeout, context_.step_text(group_, current_.step) + ": " + missing_text() +
                                                    " after " + seconds_text(waited) +
                                                    ", payloads were asked for again after round_deadline_s (" +
                                                    seconds_text(context_.times.round_deadline) +
                                                    "): check the link, or raise round_deadline_s");
}

std::string GroupRounds::missing_text() const {
    const auto self = context_.node_text(context_.self);
    for (std::size_t member = 0; member < context_.members.size(); ++member)
        for (std::size_t position = 0; position < current_.payloads.size(); ++position)
            if (member != context_.own && !current_.payloads[position].from[member].is_complete())
                return context_.tensor_text(context_.payloads_of[group_][position]) + " of " +
                       context_.node_text(context_.members[member].peer) + " has not arrived on " + self;
    return "coding has not ended on " + self;
}

void GroupRounds::fetch_from_origins() {
    for (std::size_t member = 0; member < context_.members.size(); ++member) {
        if (member == context_.own || !context_.is_reachable(member)) continue;
        const auto origin = context_.members[member].peer;
        Fetch fetch;
        for (std::size_t position = 0; position < current_.payloads.size(); ++position)
            if (!current_.payloads[position].from[member].is_complete())
                fetch.wants.push_back({.origin = origin, .tensor = context_.payloads_of[group_][position]});
        if (!fetch.wants.empty())
            context_.send(origin, FrameType::kFetch, current_.step, build_message(context_.hash, fetch));
    }
}

/// From the verdict's source; if we do not reach it, from whoever we reach: they get it from there.
void GroupRounds::send_fetches() {
    Fetch fetch;
    for (std::size_t member = 0; member < context_.members.size(); ++member)
        for (std::size_t position = 0; position < current_.payloads.size(); ++position)
            if (member != context_.own && !current_.payloads[position].from[member].is_complete())
                fetch.wants.push_back(
                    {.origin = context_.members[member].peer, .tensor = context_.payloads_of[group_][position]});
    if (fetch.wants.empty()) return;
    const auto body = build_message(context_.hash, fetch);
    const auto source = context_.members[*source_].peer;
    if (*source_ != context_.own && context_.peers[source].link == LinkState::kUp)
        context_.send(source, FrameType::kFetch, current_.step, body);
    else
        context_.send_to_members(FrameType::kFetch, current_.step, body);
}

/// A member that has ended the open step already, and has its payloads: the coordinator may not reach it, but we do.
std::optional<std::size_t> GroupRounds::member_done() const {
    for (std::size_t member = 0; member < context_.members.size(); ++member)
        if (member != context_.own && current_.acks[member] && context_.is_reachable(member)) return member;
    return std::nullopt;
}

void GroupRounds::resume(std::size_t source, TimePoint now) {
    is_frozen_ = false;
    open(now);
    source_ = source;
    if (source == context_.own) source_ = member_done().value_or(source);
    send_fetches();
    advance_all(now);
}

void GroupRounds::end_open(const Status& status) {
    is_frozen_ = true;
    if (is_ended_) return;
    is_ended_ = true;
    if (current_.has_submission()) fail_waiting(status);
}

void GroupRounds::fail_waiting(const Status& status) {
    context_.actions.emplace_back(AbortStep{.group = group_, .step = current_.step, .status = status});
    for (std::uint32_t position = 0; position < current_.payloads.size(); ++position) {
        auto& round = current_.payloads[position];
        const auto number = context_.payloads_of[group_][position];
        if (round.is_delivered || !context_.is_final(number)) continue;
        round.is_delivered = true;
        context_.actions.emplace_back(DeliverResult{
            .tensor = context_.tensor_of(number), .step = current_.step, .status = status, .fill_not_a_number = false});
    }
}

std::optional<RoundSnapshot> GroupRounds::snapshot(TimePoint now) const {
    if (!current_.opened_at) return std::nullopt;
    RoundSnapshot snapshot{.group = group_,
                           .step = current_.step,
                           .open_for = now - *current_.opened_at,
                           .ranks_not_submitted = late_local_ranks(),
                           .peers_waited_for = {},
                           .first_missing_tensor = 0};
    std::optional<TensorNumber> first;
    for (std::size_t member = 0; member < context_.members.size(); ++member) {
        const auto& remote = current_.progress[member].late_ranks;
        if (!current_.has_all_from(member))
            snapshot.ranks_not_submitted.insert(snapshot.ranks_not_submitted.end(), remote.begin(), remote.end());
        for (std::size_t position = 0; position < current_.payloads.size(); ++position) {
            if (current_.payloads[position].from[member].is_complete()) continue;
            const auto tensor = context_.tensor_of(context_.payloads_of[group_][position]);
            first = std::min(first.value_or(tensor), tensor);
            if (member != context_.own) snapshot.peers_waited_for.push_back(context_.members[member].peer);
            break;
        }
    }
    std::ranges::sort(snapshot.ranks_not_submitted);
    snapshot.first_missing_tensor = first.value_or(0);
    return snapshot;
}

ByteCount GroupRounds::retained_bytes() const {
    ByteCount sum = current_.payload_bytes();
    for (const auto& round : retained_) sum += round.payload_bytes();
    return sum;
}

}  // namespace gradsieve::exchange

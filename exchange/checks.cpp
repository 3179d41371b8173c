// Comparing one digest per rank: every node sends its ranks' digests once all of them asked, and judges by itself from
// the same numbers. One thread; owned by JobMachine.
#include "exchange/side_rounds.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

std::string hex_text(std::uint64_t value) {
    std::string text(16, '0');
    for (auto digit = text.rbegin(); digit != text.rend(); ++digit, value >>= 4U)
        *digit = "0123456789abcdef"[value & 15U];
    return text;
}

/// A completion's text is short: the rest is counted.
constexpr std::size_t kRanksNamed = 3;

struct Common {
    std::uint64_t digest = 0;
    std::size_t ranks = 0;  ///< that have it
    Rank first = 0;         ///< the lowest of them
};
/// What most ranks have is taken for right, else a single bad rank 0 would put the blame on all others. With a tie:
/// what the lowest rank has.
Common most_common(const std::map<Rank, std::uint64_t>& digests) {
    std::map<std::uint64_t, Common> found;
    for (const auto& [rank, digest] : digests) {
        auto& entry = found.try_emplace(digest, Common{digest, 0, rank}).first->second;
        ++entry.ranks;
    }
    Common best;
    for (const auto& [digest, entry] : found)
        if (entry.ranks > best.ranks || (entry.ranks == best.ranks && entry.first < best.first)) best = entry;
    return best;
}

}  // namespace

SideRounds::Comparison& SideRounds::comparison(Step number, TimePoint now) {
    const auto [entry, is_new] = checks_.try_emplace(number);
    if (is_new) entry->second.opened_at = now;
    return entry->second;
}

Status SideRounds::on_check_requested(Rank rank, Step number, std::uint64_t digest, TimePoint now) {
    const auto subject = "check " + std::to_string(number) + ": ";
    const auto known = checks_.find(number);
    if (const auto doom = doom_of_check(number, known == checks_.end() ? Comparison{} : known->second)) return *doom;
    if (finished_checks_.is_done(number) || finished_checks_.is_absurd(number))
        return {StatusCode::kInvalidArgument, subject + "this number is over or far ahead: count checks from 1"};
    auto& round = comparison(number, now);
    if (!round.asked.insert(rank).second)
        return {StatusCode::kBusy, subject + "rank " + std::to_string(rank) + " has asked already: wait for it first"};
    last_check_[rank] = std::max(last_check_[rank], number);
    round.digests[rank] = digest;
    if (has_all_local(round.asked)) {
        round.is_sent = true;
        round.sent_at = now;
        for (std::size_t member = 0; member < context_.members.size(); ++member)
            if (member != context_.own && context_.is_active(member)) send_check(number, member, round);
    }
    advance_check(number);
    forget_finished();
    return {};
}

void SideRounds::send_check(Step number, std::size_t member, const Comparison& round) {
    Check check;
    for (const auto rank : context_.members[context_.own].ranks)
        check.digests.emplace_back(rank, round.digests.at(rank));
    context_.send(context_.members[member].peer, FrameType::kCheck, number, build_message(context_.hash, check));
}

void SideRounds::on_check(std::size_t from, Step number, const Check& check, TimePoint now) {
    if (finished_checks_.is_done(number)) return send_ack(from, kCheckStream, number);
    const auto& ranks = context_.members[from].ranks;
    const bool is_sound = !finished_checks_.is_absurd(number) &&
                          std::ranges::equal(check.digests, ranks, {}, [](const auto& entry) { return entry.first; });
    if (!is_sound) return context_.refuse(context_.members[from].peer, "check that does not name the node's ranks");
    auto& round = comparison(number, now);
    for (const auto& [rank, digest] : check.digests)
        if (!round.digests.emplace(rank, digest).second && round.digests[rank] != digest)
            return context_.refuse(context_.members[from].peer, "check that differs from the one before");
    send_ack(from, kCheckStream, number);
    advance_check(number);
    forget_finished();
}

std::optional<Status> SideRounds::doom_of_check(Step number, const Comparison& round) const {
    for (const auto& [rank, detachment] : context_.detached)
        if (detachment.last_check < number && !round.digests.contains(rank))
            return Status(StatusCode::kPeerFailed, context_.rank_text(rank) + " has detached: check " +
                                                       std::to_string(number) +
                                                       " needs all ranks; detach, or start the job again");
    return std::nullopt;
}

void SideRounds::advance_check(Step number) {
    auto& round = checks_.at(number);
    if (round.is_delivered || round.asked.empty()) return;
    const auto doom = doom_of_check(number, round);
    if (!doom && (!has_all_local(round.asked) || round.digests.size() < context_.spec.world_size)) return;
    round.is_delivered = true;
    context_.actions.emplace_back(DeliverCheck{.number = number, .status = doom ? *doom : compare(number, round)});
}

Status SideRounds::compare(Step number, const Comparison& round) const {
    const auto common = most_common(round.digests);
    std::string differing;
    std::size_t named = 0, unnamed = 0;
    for (const auto& [rank, digest] : round.digests) {
        if (digest == common.digest) continue;
        if (named == kRanksNamed) {
            ++unnamed;
            continue;
        }
        differing += (named++ == 0 ? "" : ", ") + context_.rank_text(rank) + " has " + hex_text(digest);
    }
    if (differing.empty()) return {};
    if (unnamed > 0) differing += " and " + std::to_string(unnamed) + " more differ";
    return {StatusCode::kMismatch,
            "check " + std::to_string(number) + ": " + differing + "; " + std::to_string(common.ranks) + " of " +
                std::to_string(round.digests.size()) + " ranks (first " + context_.rank_text(common.first) + ") have " +
                hex_text(common.digest) + ": all ranks must be equal here; broadcast from a good rank, or restart"};
}

}  // namespace gradsieve::exchange

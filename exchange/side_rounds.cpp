// What broadcasts and checks share: acknowledgements, re-sending, time, the end. One thread; owned by JobMachine.
#include "exchange/side_rounds.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

/// Finished numbers remembered one by one; older ones count as over.
constexpr std::size_t kNumbersKept = 1024;

}  // namespace

bool NumberLog::is_absurd(Step number) const {
    const auto newest = done_.empty() ? floor_ : *done_.rbegin();
    return number == 0 || number > newest + kNumbersKept;
}

void NumberLog::set_done(Step number) {
    if (is_done(number)) return;
    done_.insert(number);
    while (!done_.empty() && (*done_.begin() == floor_ + 1 || done_.size() > kNumbersKept)) {
        floor_ = *done_.begin();
        done_.erase(done_.begin());
    }
}

SideRounds::SideRounds(JobContext& context, Outbox& outbox) : context_(context), outbox_(outbox) {}

bool SideRounds::has_all_local(const std::set<Rank>& asked) const {
    return std::ranges::all_of(context_.members[context_.own].ranks, [&](Rank rank) { return asked.contains(rank); });
}

bool SideRounds::has_all_acks(const std::set<std::size_t>& acknowledged) const {
    for (std::size_t member = 0; member < context_.members.size(); ++member)
        if (member != context_.own && context_.is_active(member) && !acknowledged.contains(member)) return false;
    return true;
}

void SideRounds::send_ack(std::size_t member, Stream stream, Step number) {
    context_.send(context_.members[member].peer, FrameType::kAck, number,
                  build_message(context_.hash, Ack{.stream = stream, .is_aborted = false, .digest = 0}));
    outbox_.on_own_acknowledgement(stream, number);
}

void SideRounds::on_ack(std::size_t from, Step number, Stream stream) {
    if (stream == kBroadcastStream) {
        if (const auto found = broadcasts_.find(number); found != broadcasts_.end()) {
            found->second.acknowledged.insert(from);
            outbox_.on_acknowledged(context_.members[from].peer, stream, number);
        }
    } else if (const auto found = checks_.find(number); found != checks_.end()) {
        found->second.acknowledged.insert(from);
    }
    forget_finished();
}

void SideRounds::resend_to(std::size_t member) {
    for (auto& [number, round] : broadcasts_) {
        if (round.ask && has_all_local(round.asked))
            context_.send(context_.members[member].peer, FrameType::kBroadcastAsk, number,
                          build_message(context_.hash, *round.ask));
        if (round.sent_at && !round.acknowledged.contains(member)) send_bytes(number, member, round);
    }
    for (const auto& [number, round] : checks_)
        if (round.is_sent && !round.acknowledged.contains(member)) send_check(number, member, round);
}

void SideRounds::on_members_changed() {
    std::vector<Step> numbers;
    for (const auto& entry : broadcasts_) numbers.push_back(entry.first);
    for (const auto number : numbers) advance_broadcast(number);
    numbers.clear();
    for (const auto& entry : checks_) numbers.push_back(entry.first);
    for (const auto number : numbers) advance_check(number);
    forget_finished();
}

void SideRounds::forget_finished() {
    std::erase_if(broadcasts_, [this](const auto& entry) {
        const auto& round = entry.second;
        if (!round.is_delivered || (round.sent_at && !has_all_acks(round.acknowledged))) return false;
        finished_broadcasts_.set_done(entry.first);
        return true;
    });
    std::erase_if(checks_, [this](const auto& entry) {
        const auto& round = entry.second;
        if (!round.is_delivered || (round.is_sent && !has_all_acks(round.acknowledged))) return false;
        finished_checks_.set_done(entry.first);
        return true;
    });
}

void SideRounds::on_time(TimePoint now) {
    for (auto& [number, round] : broadcasts_) check_time(number, round, now);
    for (auto& [number, round] : checks_) {
        if (!round.is_sent || now - round.sent_at < context_.times.announce_every) continue;
        round.sent_at = now;
        for (std::size_t member = 0; member < context_.members.size(); ++member)
            if (member != context_.own && context_.is_active(member) && !round.acknowledged.contains(member))
                send_check(number, member, round);
    }
    const auto since = waiting_since();
    if (!since || now - *since < context_.times.announce_every) return;
    if (reported_at_ && now - *reported_at_ < context_.times.announce_every) return;
    reported_at_ = now;  // any answer shows that the member still has the job
    context_.send_to_members(FrameType::kProgress, 0,
                             build_message(context_.hash, Progress{.stream = kCheckStream, .late_ranks = {}}));
}

/// The bytes are sent again after the deadline; after twice the time the nodes decide.
void SideRounds::check_time(Step number, Broadcast& round, TimePoint now) {
    if (!round.sent_at || has_all_acks(round.acknowledged)) return;
    const auto waited = now - *round.sent_at;
    if (waited >= context_.times.round_deadline && !round.has_resent) {
        round.has_resent = true;
        for (std::size_t member = 0; member < context_.members.size(); ++member)
            if (member != context_.own && context_.is_active(member) && !round.acknowledged.contains(member))
                send_bytes(number, member, round);
    }
    if (waited >= 2 * context_.times.round_deadline)
        context_.complain(
            StatusCode::kTimeout,
            "broadcast " + std::to_string(number) + " from " + context_.node_text(context_.self) +
                " has not arrived everywhere within twice round_deadline_s: check the links, or raise it");
}

void SideRounds::end_open(const Status& status) {
    for (auto& [number, round] : broadcasts_) {
        if (round.is_delivered || round.asked.empty()) continue;
        round.is_delivered = true;
        context_.actions.emplace_back(
            DeliverBroadcast{.tensor = round.ask->tensor, .number = number, .bytes = {}, .status = status});
    }
    for (auto& [number, round] : checks_) {
        if (round.is_delivered || round.asked.empty()) continue;
        round.is_delivered = true;
        context_.actions.emplace_back(DeliverCheck{.number = number, .status = status});
    }
}

bool SideRounds::owes(std::size_t member) const {
    if (member == context_.own || !context_.is_active(member)) return false;
    return std::ranges::any_of(broadcasts_,
                               [member](const auto& entry) {
                                   return entry.second.sent_at && !entry.second.acknowledged.contains(member);
                               }) ||
           std::ranges::any_of(checks_, [member](const auto& entry) {
               return entry.second.is_sent && !entry.second.acknowledged.contains(member);
           });
}

std::optional<TimePoint> SideRounds::waiting_since() const {
    std::optional<TimePoint> since;
    for (const auto& entry : broadcasts_)
        since = std::min(since.value_or(entry.second.opened_at), entry.second.opened_at);
    for (const auto& entry : checks_) since = std::min(since.value_or(entry.second.opened_at), entry.second.opened_at);
    return since;
}

Step SideRounds::last_broadcast(Rank rank) const {
    const auto found = last_broadcast_.find(rank);
    return found == last_broadcast_.end() ? 0 : found->second;
}

Step SideRounds::last_check(Rank rank) const {
    const auto found = last_check_.find(rank);
    return found == last_check_.end() ? 0 : found->second;
}

}  // namespace gradsieve::exchange

// Deciding together. One thread; owned by JobMachine.
#include "exchange/decision.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

/// A node whose ranks have all detached may still hold the last step's payloads, or may be gone: asked, but not for
/// long.
constexpr Duration kGoneGrace = std::chrono::seconds(2);

}  // namespace

Decision::Decision(JobContext& context, std::vector<GroupRounds>& rounds) : context_(context), rounds_(rounds) {}

/// Members stand in the order of their lowest rank: the first one that is alive leads.
std::size_t Decision::coordinator() const {
    for (std::size_t member = 0; member < context_.members.size(); ++member)
        if (context_.is_active(member)) return member;
    return context_.own;
}

void Decision::freeze() {
    for (auto& rounds : rounds_) rounds.freeze();
}

void Decision::start(const Complaint& complaint, TimePoint now) {
    if (stage_ != Stage::kNone) return;
    stage_ = Stage::kComplaining;
    cause_ = complaint.reason;
    failed_ = complaint.failed;
    pursue(now);
}

/// Tells the coordinator, or leads if that is us.
void Decision::pursue(TimePoint now) {
    const auto lead = coordinator();
    if (lead == context_.own) return begin_asking(now);
    if (told_ != lead) since_ = now;
    told_ = lead;
    sent_at_ = now;
    context_.send(context_.members[lead].peer, FrameType::kComplaint, 0,
                  build_message(context_.hash, Complaint{.reason = cause_, .failed = failed_}));
}

void Decision::on_complaint(std::size_t from, const Complaint& complaint, TimePoint now) {
    if (verdict_)
        return context_.send(context_.members[from].peer, FrameType::kVerdict, 0,
                             build_message(context_.hash, *verdict_));
    start(complaint, now);  // leads, or passes it on: the sender may not reach our coordinator
}

void Decision::begin_asking(TimePoint now) {
    stage_ = Stage::kAsking;
    since_ = sent_at_ = now;
    ++attempt_;
    freeze();
    reports_.clear();
    for (std::size_t member = 0; member < context_.members.size(); ++member)
        if (member != context_.own && context_.is_reachable(member)) ask(member);
    check_reports(now);
}

void Decision::ask(std::size_t member) {
    context_.send(context_.members[member].peer, FrameType::kQuery, 0,
                  build_message(context_.hash, Query{.attempt = attempt_, .reason = cause_}));
}

Report Decision::own_report() const {
    Report report;
    for (const auto& rounds : rounds_)
        report.groups.push_back({.done = rounds.done_step(), .is_complete = rounds.is_complete()});
    return report;
}

void Decision::on_query(std::size_t from, const Query& query, TimePoint now) {
    const auto to = context_.members[from].peer;
    if (verdict_) return context_.send(to, FrameType::kVerdict, 0, build_message(context_.hash, *verdict_));
    if (stage_ == Stage::kGivenUp) return;
    auto report = own_report();
    report.attempt = query.attempt;
    const auto better = coordinator();
    if (better < from && context_.peers[context_.members[better].peer].link != LinkState::kUp && better != context_.own)
        return;           // it may come back or fail: the sender asks again
    if (better < from) {  // the sender has lost sight of a coordinator that we still reach, which must hear of it
        report.is_refused = true;
        report.coordinator = context_.members[better].peer;
        report.groups.clear();
        start({.reason = query.reason, .failed = {}}, now);
    } else {
        if (stage_ != Stage::kReported || leader_ != from) since_ = now;
        stage_ = Stage::kReported;
        leader_ = from;
        leader_attempt_ = query.attempt;
        cause_ = query.reason;
        freeze();
    }
    context_.send(to, FrameType::kReport, 0, build_message(context_.hash, report));
}

void Decision::on_report(std::size_t from, const Report& report, TimePoint now) {
    if (stage_ != Stage::kAsking || report.attempt != attempt_) return;
    if (report.is_refused) {
        const auto better = context_.member_of(report.coordinator);
        if (!better || *better >= context_.own) return;
        stage_ = Stage::kOverruled;
        since_ = now;
        overruled_by_ = "cannot reach the coordinator " + context_.node_text(report.coordinator) + ", which " +
                        context_.node_text(context_.members[from].peer) + " still reaches";
        return;
    }
    if (report.groups.size() != rounds_.size())
        return context_.refuse(context_.members[from].peer, "report of another number of groups");
    reports_[from] = report;
    check_reports(now);
}

bool Decision::is_expected(std::size_t member, TimePoint now) const {
    if (member == context_.own || reports_.contains(member) || !context_.is_reachable(member)) return false;
    return !context_.is_gone(member) || now - since_ < kGoneGrace;
}

void Decision::check_reports(TimePoint now) {
    if (stage_ != Stage::kAsking) return;
    for (std::size_t member = 0; member < context_.members.size(); ++member)
        if (is_expected(member, now)) return;
    decide(now);
}

void Decision::decide(TimePoint now) {
    reports_[context_.own] = own_report();
    Verdict verdict{.reason = cause_, .groups = {}};
    for (std::size_t group = 0; group < rounds_.size(); ++group) {
        Verdict::Group chosen{.target = 0, .source = context_.self};
        for (const auto& [member, report] : reports_) {
            const auto& state = report.groups[group];
            const auto newest = state.is_complete ? state.done + 1 : state.done;
            if (member == reports_.begin()->first || newest > chosen.target)
                chosen = {.target = newest, .source = context_.members[member].peer};
        }
        verdict.groups.push_back(chosen);
    }
    adopt(verdict, now);
}

void Decision::on_verdict(std::size_t from, const Verdict& verdict, TimePoint now) {
    echoed_.insert(from);
    if (verdict_ || stage_ == Stage::kGivenUp) return;
    const bool is_sound = verdict.groups.size() == rounds_.size() && verdict.reason.code != StatusCode::kOk &&
                          std::ranges::all_of(verdict.groups, [this](const auto& group) {
                              return context_.member_of(group.source).has_value();
                          });
    if (!is_sound) return context_.refuse(context_.members[from].peer, "verdict that does not fit the job");
    adopt(verdict, now);
}

/// Passed on first: it must outlive whoever sent it to us.
void Decision::adopt(const Verdict& verdict, TimePoint now) {
    stage_ = Stage::kDecided;
    since_ = sent_at_ = now;
    verdict_ = verdict;
    context_.send_to_members(FrameType::kVerdict, 0, build_message(context_.hash, verdict));
    carry_out(now);
}

void Decision::carry_out(TimePoint now) {
    for (std::size_t group = 0; group < rounds_.size(); ++group) {
        auto& rounds = rounds_[group];
        const auto& [target, source] = verdict_->groups[group];
        if (rounds.done_step() + 1 == target)
            rounds.resume(*context_.member_of(source), now);
        else
            rounds.end_open(verdict_->reason.status());
    }
}

bool Decision::is_carried_out() const {
    for (std::size_t group = 0; group < rounds_.size(); ++group)
        if (rounds_[group].done_step() + 1 == verdict_->groups[group].target) return false;
    return true;
}

std::optional<Status> Decision::reason() const {
    if (given_up_) return given_up_;
    if (!verdict_) return std::nullopt;
    return verdict_->reason.status();
}

/// The verdict is carried out here and known everywhere, and nobody needs our payloads; or the time for that is over.
std::optional<Status> Decision::outcome(TimePoint now) const {
    if (given_up_) return given_up_;
    if (!verdict_) return std::nullopt;
    const auto limit = std::min(context_.times.peer_timeout, context_.times.round_deadline);
    if (now - since_ >= limit) return reason();
    if (!is_carried_out()) return std::nullopt;
    for (std::size_t member = 0; member < context_.members.size(); ++member)
        if (member != context_.own && context_.is_active(member) && !echoed_.contains(member)) return std::nullopt;
    if (!std::ranges::all_of(rounds_, &GroupRounds::is_acknowledged)) return std::nullopt;
    return reason();
}

/// Ends without a result for open steps. Those that reported to us do not reach a better coordinator either.
void Decision::give_up(const std::string& why) {
    stage_ = Stage::kGivenUp;
    given_up_ = Status(StatusCode::kUnavailable, context_.node_text(context_.self) + " " + why +
                                                     ", so it has no verdict on the open step (" + cause_.text +
                                                     "): restart the job from its checkpoint");
    for (const auto& entry : reports_)
        if (entry.first != context_.own)
            context_.send(context_.members[entry.first].peer, FrameType::kEnd, 0,
                          build_message(context_.hash, Reason{.code = given_up_->code(), .text = given_up_->text()}));
}

void Decision::on_members_changed(TimePoint now) {
    if (stage_ == Stage::kComplaining && told_ != coordinator()) pursue(now);
    check_reports(now);
    if (stage_ == Stage::kReported && !context_.is_active(leader_)) {
        stage_ = Stage::kComplaining;
        told_.reset();
        pursue(now);
    }
}

void Decision::drop_silent_members(TimePoint now) {
    if (now - since_ < context_.times.peer_timeout) return;
    for (std::size_t member = 0; member < context_.members.size(); ++member) {
        auto& peer = context_.peers[context_.members[member].peer];
        if (member != context_.own && peer.link == LinkState::kUp && !reports_.contains(member)) peer.is_failed = true;
    }
    for (auto& rounds : rounds_) rounds.on_members_changed(now);
}

void Decision::on_time(TimePoint now) {
    const bool is_due = now - sent_at_ >= context_.times.announce_every;
    const auto waited = now - since_;
    if (is_due) sent_at_ = now;
    switch (stage_) {
        case Stage::kComplaining:
            if (waited >= context_.times.peer_timeout) return give_up("gets no answer from the coordinator");
            if (is_due) pursue(now);
            return;
        case Stage::kReported:
            if (waited >= 2 * context_.times.peer_timeout)
                give_up("gets no verdict from the coordinator " + context_.node_text(context_.members[leader_].peer));
            return;
        case Stage::kOverruled:
            if (waited >= context_.times.peer_timeout) give_up(overruled_by_);
            return;
        case Stage::kAsking:
            for (std::size_t member = 0; is_due && member < context_.members.size(); ++member)
                if (is_expected(member, now)) ask(member);
            drop_silent_members(now);
            return check_reports(now);
        case Stage::kDecided:
            for (std::size_t member = 0; is_due && member < context_.members.size(); ++member)
                if (member != context_.own && context_.is_active(member) && !echoed_.contains(member))
                    resend_to(member, now);
            return;
        case Stage::kNone:
        case Stage::kGivenUp: return;
    }
}

void Decision::resend_to(std::size_t member, TimePoint now) {
    if (verdict_)
        context_.send(context_.members[member].peer, FrameType::kVerdict, 0, build_message(context_.hash, *verdict_));
    else if (stage_ == Stage::kAsking && !reports_.contains(member))
        ask(member);
    else if (stage_ == Stage::kComplaining && told_ == member)
        pursue(now);
    else if (stage_ == Stage::kReported && leader_ == member) {
        auto report = own_report();  // it may have been lost; frozen, so it says the same
        report.attempt = leader_attempt_;
        context_.send(context_.members[member].peer, FrameType::kReport, 0, build_message(context_.hash, report));
    }
}

}  // namespace gradsieve::exchange

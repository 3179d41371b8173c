// The life of one job on one node: start, local ranks, end. Must never ask for the time or touch a socket. One thread;
// owned by the hall.
#include "exchange/job_machine.hpp"

#include "exchange/job_machine_impl.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

/// How long a node whose ranks have all detached waits for the others' last acknowledgements after their last frame.
constexpr Duration kLinger = std::chrono::seconds(2);

Epoch epoch_of(std::uint64_t seed, std::uint64_t hash) {
    const auto mixed = mix64(seed ^ mix64(hash));
    return mixed == 0 ? 1 : mixed;
}

}  // namespace

JobMachine::Impl::Impl(JobKey key, PeerIndex self, std::vector<NodeName> nodes, const JobTimes& times,
                       const JobLimits& limits, std::uint64_t seed)
    : epoch_seed(seed),
      context([&] {
          JobContext made;
          made.hash = job_hash(key);
          made.key = std::move(key);
          made.self = self;
          made.nodes = std::move(nodes);
          made.times = times;
          made.limits = limits;
          made.nonce = mix64(seed ^ mix64(made.hash + self + 1));
          made.peers.resize(made.nodes.size());
          return made;
      }()),
      formation(context),
      outbox(context),
      sides(context, outbox),
      snapshots(context) {}

void JobMachine::Impl::start_if_ready(TimePoint now) {
    if (phase != Phase::kForming || context.failure) return;
    const auto ready = formation.try_start(now);
    if (ready) begin(*ready, epoch_of(epoch_seed, context.hash), now);
}

void JobMachine::Impl::begin(const Start& agreed, Epoch agreed_epoch, TimePoint now) {
    phase = Phase::kRunning;
    start = agreed;
    started_at = now;
    context.epoch = agreed_epoch;
    context.first_steps = agreed.first_steps;
    for (const auto& member : agreed.members) {
        if (member.peer == context.self) context.own = context.members.size();
        context.members.push_back({.peer = member.peer, .ranks = member.ranks});
    }
    context.owners_of = shard_owners(context.spec, context.members.size());
    group_rounds.reserve(context.groups.size());
    for (GroupNumber group = 0; group < context.groups.size(); ++group)
        group_rounds.emplace_back(context, outbox, group);
    decision.emplace(context, group_rounds);
    StartJob action{
        .epoch = context.epoch, .members = context.members, .first_steps = context.first_steps, .lost_reasons = {}};
    for (GroupNumber group = 0; group < context.groups.size(); ++group)
        action.lost_reasons.push_back(formation.lost_reason(agreed, group));
    for (GroupNumber group = 0; group < context.groups.size(); ++group)
        action.named_steps.push_back(formation.wanted_step(group));
    context.actions.emplace_back(std::move(action));
    if (context.own == 0)
        for (const auto& member : context.members)
            if (member.peer != context.self) send_start(member.peer);
    for (const auto& frame : std::exchange(early, {})) on_frame(frame, now);
}

void JobMachine::Impl::settle(TimePoint now) {
    if (phase == Phase::kEnded) return;
    if (context.failure) {
        const auto failure = *context.failure;
        return phase == Phase::kForming ? refuse_start(failure) : end_everywhere(failure);
    }
    if (phase == Phase::kForming) return;
    if (context.complaint) decision->start(*std::exchange(context.complaint, std::nullopt), now);
    if (const auto reason = decision->reason(); reason && !has_answered_sides) {
        has_answered_sides = true;
        sides.end_open(*reason);
        snapshots.end_open(*reason);
    }
    if (const auto outcome = decision->outcome(now)) return finish(*outcome);
    if (is_leaving_done(now)) finish({});
}

void JobMachine::Impl::refuse_start(const Status& status) {
    const auto body = build_message(context.hash, Reason{.code = status.code(), .text = status.text()});
    for (PeerIndex peer = 0; peer < context.nodes.size(); ++peer)
        if (peer != context.self) context.send_announcement(peer, FrameType::kRefuse, body);
    finish(status);
}

void JobMachine::Impl::end_everywhere(const Status& status) {
    for (const auto& member : context.members)
        if (member.peer != context.self && !context.peers[member.peer].last_heard) send_start(member.peer);
    context.send_to_members(FrameType::kEnd, 0,
                            build_message(context.hash, Reason{.code = status.code(), .text = status.text()}));
    finish(status);
}

/// Everybody who waits here gets an answer; then the end.
void JobMachine::Impl::finish(const Status& status) {
    phase = Phase::kEnded;
    end = status;
    for (auto& rounds : group_rounds) rounds.end_open(status);
    sides.end_open(status);
    snapshots.end_open(status);
    context.actions.emplace_back(EndJob{.status = status});
}

Status JobMachine::Impl::check_local(Rank rank) const {
    if (end && !end->is_ok()) return *end;
    if (decision)
        if (const auto reason = decision->reason()) return *reason;
    const auto name = "rank " + std::to_string(rank);
    if (phase != Phase::kRunning)
        return {StatusCode::kFailedPrecondition,
                name + ": the job is not running: attach and wait for its start first"};
    if (std::ranges::binary_search(context.members[context.own].ranks, rank) && !context.detached.contains(rank))
        return {};
    return {StatusCode::kFailedPrecondition, name + ": not attached on this node: attach it first"};
}

Status JobMachine::Impl::check_submission(Rank rank, TensorNumber tensor) const {
    GRADSIEVE_TRY(check_local(rank));
    if (tensor < context.spec.tensors.size()) return {};
    return {StatusCode::kInvalidArgument, "tensor " + std::to_string(tensor) + ": the job has " +
                                              std::to_string(context.spec.tensors.size()) +
                                              ": use a number from the attach answer"};
}

void JobMachine::Impl::on_rank_left(Rank rank, bool is_clean, const std::string& text, TimePoint now) {
    if (phase == Phase::kForming) {
        if (!formation.detach(rank)) return;
        formation.announce_to_all(now);
        const auto reason = "rank " + std::to_string(rank) + " died before the job started: " + text;
        if (formation.local_ranks().empty()) finish(is_clean ? Status{} : Status(StatusCode::kPeerFailed, reason));
        return;
    }
    if (phase != Phase::kRunning || context.member_with(rank) != context.own || context.detached.contains(rank)) return;
    if (is_clean) return detach(rank, now);
    on_rank_died(rank, text, std::nullopt);
}

/// Passed on to all others, then the end: a dead rank fails its step at once.
void JobMachine::Impl::on_rank_died(Rank rank, const std::string& text, std::optional<PeerIndex> heard_from) {
    for (const auto& member : context.members)
        if (member.peer != context.self && !context.peers[member.peer].last_heard) send_start(member.peer);
    context.send_to_members(FrameType::kRankDied, 0, build_message(context.hash, RankDied{.rank = rank, .text = text}),
                            heard_from);
    finish({StatusCode::kPeerFailed,
            context.rank_text(rank) + " died: " + text + ": the job has ended; restart it from its checkpoint"});
}

void JobMachine::Impl::detach(Rank rank, TimePoint now) {
    Detachment detachment{.rank = rank,
                          .last_broadcast = sides.last_broadcast(rank),
                          .last_check = sides.last_check(rank),
                          .last_steps = {}};
    for (const auto& rounds : group_rounds) detachment.last_steps.push_back(rounds.last_coded_step());
    context.detached.emplace(rank, std::move(detachment));
    context.send_to_members(FrameType::kDetached, 0, detached_body());
    if (context.is_gone(context.own)) leaving_since = now;
    on_members_changed(now);
}

void JobMachine::Impl::on_members_changed(TimePoint now) {
    for (std::size_t member = 0; member < context.members.size(); ++member)
        if (!context.is_active(member)) outbox.drop(context.members[member].peer);
    for (auto& rounds : group_rounds) rounds.on_members_changed(now);
    sides.on_members_changed();
    decision->on_members_changed(now);
}

/// The last step's payloads and acknowledgements must still reach everybody: who has not answered is waited for as long
/// as it talks to us, or as its link may come back.
bool JobMachine::Impl::is_leaving_done(TimePoint now) const {
    if (!leaving_since) return false;
    if (now - *leaving_since >= 2 * context.times.round_deadline + context.times.peer_timeout) return true;
    for (std::size_t member = 0; member < context.members.size(); ++member) {
        const bool owes = sides.owes(member) || std::ranges::any_of(group_rounds, [member](const auto& rounds) {
                              return rounds.owes(member);
                          });
        if (!owes) continue;
        const auto& peer = context.peers[context.members[member].peer];
        if (peer.link != LinkState::kUp) {
            if (now - std::max(peer.down_since, started_at) < context.times.peer_timeout) return false;
        } else if (now - std::max({*leaving_since, peer.up_since, peer.last_heard.value_or(started_at)}) < kLinger) {
            return false;
        }
    }
    return true;
}

// ---- the public face: guard, do, settle ----

JobMachine::JobMachine(JobKey key, PeerIndex self, std::vector<NodeName> nodes, const JobTimes& times,
                       const JobLimits& limits, std::uint64_t epoch_seed)
    : impl_(std::make_unique<Impl>(std::move(key), self, std::move(nodes), times, limits, epoch_seed)) {}
JobMachine::JobMachine(JobMachine&&) noexcept = default;
JobMachine& JobMachine::operator=(JobMachine&&) noexcept = default;
JobMachine::~JobMachine() = default;

void JobMachine::offer_state(KeptState kept) { impl_->formation.offer_state(std::move(kept)); }

Status JobMachine::on_rank_attached(Rank rank, const JobSpec& spec, TimePoint now) {
    if (impl_->end && !impl_->end->is_ok()) return *impl_->end;
    if (impl_->leaving_since && !impl_->end)
        return {StatusCode::kBusy, "rank " + std::to_string(rank) + ": the last run of job '" + key().name +
                                       "' is still handing its last step to other nodes: try again in a moment"};
    if (impl_->phase != Impl::Phase::kForming)
        return {StatusCode::kFailedPrecondition, "rank " + std::to_string(rank) + ": job '" + key().name +
                                                     "' has started or ended: give the next run another run id"};
    GRADSIEVE_TRY(impl_->formation.attach(rank, spec));
    impl_->formation.announce_to_all(now);
    impl_->start_if_ready(now);
    impl_->settle(now);
    return {};
}

void JobMachine::on_rank_left(Rank rank, bool is_clean, const std::string& text, TimePoint now) {
    impl_->on_rank_left(rank, is_clean, text, now);
    impl_->settle(now);
}

Status JobMachine::on_submitted(Rank rank, TensorNumber tensor, Step step, TimePoint now) {
    GRADSIEVE_TRY(impl_->check_submission(rank, tensor));
    const auto status = impl_->group_rounds[impl_->context.group_of[tensor]].on_submitted(rank, tensor, step, now);
    impl_->settle(now);
    return status;
}

Status JobMachine::on_broadcast_requested(Rank rank, TensorNumber tensor, Step number, Rank root, TimePoint now) {
    GRADSIEVE_TRY(impl_->check_submission(rank, tensor));
    const auto status = impl_->sides.on_broadcast_requested(rank, tensor, number, root, now);
    impl_->settle(now);
    return status;
}

Status JobMachine::on_check_requested(Rank rank, Step number, std::uint64_t digest, TimePoint now) {
    GRADSIEVE_TRY(impl_->check_local(rank));
    const auto status = impl_->sides.on_check_requested(rank, number, digest, now);
    impl_->settle(now);
    return status;
}

Status JobMachine::on_snapshot_requested(GroupNumber group, Step step, TimePoint now) {
    if (impl_->end && !impl_->end->is_ok()) return *impl_->end;
    if (impl_->phase != Impl::Phase::kRunning)
        return {
            StatusCode::kFailedPrecondition,
            "job '" + key().name + "' is not running here: a snapshot is made of a job that runs; wait for its start"};
    if (group >= impl_->context.groups.size())
        return {StatusCode::kInvalidArgument, "group " + std::to_string(group) + ": the job has " +
                                                  std::to_string(impl_->context.groups.size()) + "; name one of them"};
    const auto status = impl_->snapshots.on_requested(group, step, now);
    impl_->settle(now);
    return status;
}

void JobMachine::on_snapshot_saved(GroupNumber group, Step step, const SnapshotOutcome& outcome, TimePoint now) {
    if (impl_->phase != Impl::Phase::kRunning) return;
    impl_->snapshots.on_saved(group, step, outcome, now);
    impl_->settle(now);
}

void JobMachine::on_encoded(TensorNumber tensor, Step step, std::vector<std::pair<std::uint32_t, SharedView>> chunks,
                            TimePoint now) {
    if (impl_->phase != Impl::Phase::kRunning) return;
    impl_->group_rounds[impl_->context.group_of[tensor]].on_encoded(tensor, step, std::move(chunks), now);
    impl_->settle(now);
}

void JobMachine::on_encode_failed(TensorNumber tensor, Step step, const Status& status, TimePoint now) {
    if (impl_->phase != Impl::Phase::kRunning) return;
    impl_->group_rounds[impl_->context.group_of[tensor]].on_encode_failed(tensor, step, status, now);
    impl_->settle(now);
}

void JobMachine::on_decoded(TensorNumber tensor, Step step, std::uint64_t digest, const Status& status, TimePoint now) {
    if (impl_->phase != Impl::Phase::kRunning) return;
    impl_->group_rounds[impl_->context.group_of[tensor]].on_decoded(tensor, step, digest, status, now);
    impl_->settle(now);
}

void JobMachine::on_broadcast_bytes(TensorNumber tensor, Step number, SharedView bytes, TimePoint now) {
    if (impl_->phase != Impl::Phase::kRunning) return;
    impl_->sides.on_broadcast_bytes(tensor, number, bytes, now);
    impl_->settle(now);
}

void JobMachine::on_frame(PeerIndex from, std::uint16_t type, Epoch epoch, Step step, const SharedView& body,
                          TimePoint now) {
    impl_->on_frame({.from = from, .type = type, .epoch = epoch, .step = step, .body = body}, now);
    impl_->settle(now);
}

void JobMachine::on_link(PeerIndex peer, LinkState state, std::uint64_t instance, const std::string& text,
                         TimePoint now) {
    impl_->on_link(peer, state, instance, text, now);
    impl_->settle(now);
}

void JobMachine::on_time(TimePoint now) {
    impl_->on_time(now);
    impl_->settle(now);
}

void JobMachine::flush() {
    if (impl_->phase == Impl::Phase::kRunning) impl_->outbox.flush();
}

std::vector<Action> JobMachine::take_actions() { return std::exchange(impl_->context.actions, {}); }
void JobMachine::ask_for_answers(bool are_wanted) noexcept { impl_->context.are_answers_wanted = are_wanted; }

void JobMachine::set_watcher(RoundWatcher* watcher) noexcept { impl_->context.watcher = watcher; }
bool JobMachine::is_ended() const noexcept { return impl_->phase == Impl::Phase::kEnded; }
JobSnapshot JobMachine::snapshot(TimePoint now) const { return impl_->snapshot(now); }
const JobKey& JobMachine::key() const noexcept { return impl_->context.key; }

}  // namespace gradsieve::exchange

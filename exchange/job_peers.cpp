// Links, time and status of one job on one node. One thread; owned by JobMachine.
#include "exchange/job_machine_impl.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

std::string seconds_text(Duration duration) {
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(duration).count()) + " s";
}

}  // namespace

void JobMachine::Impl::on_link(PeerIndex peer, LinkState state, std::uint64_t instance, const std::string& text,
                               TimePoint now) {
    if (peer >= context.peers.size() || peer == context.self || phase == Phase::kEnded) return;
    auto& known = context.peers[peer];
    if (state != LinkState::kUp) {
        if (known.link == LinkState::kUp) known.down_since = now;
        known.link = state;
        known.down_text = text;
        if (phase == Phase::kForming && state == LinkState::kClosed) formation.forget(peer);
        return;
    }
    const bool was_down = known.link != LinkState::kUp || !known.instance;
    const bool is_restarted = known.instance && *known.instance != instance;
    if (was_down) known.up_since = now;
    known.link = LinkState::kUp;
    known.instance = instance;
    if (is_restarted && phase == Phase::kForming) formation.forget(peer);
    if (is_restarted && phase == Phase::kRunning && context.member_of(peer))
        return fail_peer(peer,
                         "daemon on " + context.node_text(peer) + " restarted in the middle of job '" +
                             context.key.name +
                             "': start the job again: it goes on from the last step whose state all nodes kept",
                         now);
    if (was_down) resend_to(peer, now);
}

void JobMachine::Impl::send_start(PeerIndex to) {
    context.send(to, FrameType::kStart, 0, build_message(context.hash, *start));
}

Bytes JobMachine::Impl::detached_body() const {
    Detached news;
    for (const auto& entry : context.detached) news.ranks.push_back(entry.second);
    return build_message(context.hash, news);
}

/// Frames may have been lost with the connection: everything that the peer has not answered goes again.
void JobMachine::Impl::resend_to(PeerIndex peer, TimePoint now) {
    if (phase == Phase::kForming) {
        if (!formation.local_ranks().empty()) formation.announce(peer);
        return;
    }
    const auto member = context.member_of(peer);
    if (!member || !context.is_reachable(*member)) return;
    if (!context.peers[peer].last_heard) send_start(peer);
    if (!context.detached.empty()) context.send(peer, FrameType::kDetached, 0, detached_body());
    for (auto& rounds : group_rounds) rounds.resend_to(*member);
    sides.resend_to(*member);
    snapshots.resend_to(*member);
    decision->resend_to(*member, now);
}

void JobMachine::Impl::on_time(TimePoint now) {
    if (phase == Phase::kForming) {
        if (formation.local_ranks().empty()) return;
        formation.on_time(now);
        start_if_ready(now);
    }
    if (phase != Phase::kRunning) return;
    check_links(now);
    check_answers(now);
    for (auto& rounds : group_rounds) rounds.on_time(now);
    sides.on_time(now);
    snapshots.on_time(now);
    decision->on_time(now);
}

/// Named at once by the transport, failed only after the timeout: a daemon that is back in time rejoins the round.
void JobMachine::Impl::check_links(TimePoint now) {
    for (std::size_t member = 0; member < context.members.size(); ++member) {
        const auto peer = context.members[member].peer;
        const auto& known = context.peers[peer];
        if (member == context.own || !context.is_active(member) || known.link == LinkState::kUp) continue;
        if (now - std::max(known.down_since, started_at) < context.times.peer_timeout) continue;
        const auto how = known.link == LinkState::kClosed ? " has been closed for " : " has been silent for ";
        fail_peer(peer,
                  context.node_text(peer) + " (" + context.nodes[peer].address + ") failed: its link to " +
                      context.node_text(context.self) + how + seconds_text(now - known.down_since) +
                      " (peer_timeout_s): " + known.down_text + "; restart the job from its checkpoint",
                  now);
    }
}

/// A member that is reachable but has nothing to say about a round that we wait for no longer has the job.
void JobMachine::Impl::check_answers(TimePoint now) {
    std::optional<TimePoint> since = sides.waiting_since();
    for (const auto& rounds : group_rounds)
        if (const auto opened = rounds.waiting_since()) since = std::min(since.value_or(*opened), *opened);
    if (!since || leaving_since) return;
    for (std::size_t member = 0; member < context.members.size(); ++member) {
        const auto peer = context.members[member].peer;
        const auto& known = context.peers[peer];
        if (member == context.own || !context.is_active(member) || known.link != LinkState::kUp) continue;
        if (now - std::max({*since, started_at, known.last_heard.value_or(*since), known.up_since}) <
            context.times.peer_timeout)
            continue;
        fail_peer(peer,
                  context.node_text(peer) + " has not answered for job '" + context.key.name + "' for " +
                      seconds_text(context.times.peer_timeout) +
                      " (peer_timeout_s), although its daemon is reachable; restart the job from its checkpoint",
                  now);
    }
}

void JobMachine::Impl::fail_peer(PeerIndex peer, const std::string& text, TimePoint now) {
    context.peers[peer].is_failed = true;
    if (!leaving_since)  // else nobody here waits for a verdict
        decision->start({.reason = {.code = StatusCode::kPeerFailed, .text = text}, .failed = {peer}}, now);
    on_members_changed(now);
}

JobSnapshot JobMachine::Impl::snapshot(TimePoint now) const {
    JobSnapshot shot;
    const bool is_deciding = decision && decision->is_open();
    shot.phase = phase == Phase::kForming ? "forming"
                 : phase == Phase::kEnded ? "ended"
                 : is_deciding            ? "deciding"
                 : leaving_since          ? "leaving"
                                          : "running";
    shot.epoch = context.epoch;
    shot.members = context.members;
    if (phase == Phase::kForming) shot.missing_ranks = formation.missing_ranks();
    for (const auto& rounds : group_rounds) {
        shot.committed_steps.push_back(rounds.committed_step());
        shot.payload_bytes_retained += rounds.retained_bytes();
        if (auto round = rounds.snapshot(now)) shot.open_rounds.push_back(std::move(*round));
    }
    shot.steps_committed = context.steps_committed;
    shot.steps_aborted = context.steps_aborted;
    shot.digests_compared = context.digests_compared;
    shot.digests_different = context.digests_different;
    shot.frames_refused = context.frames_refused;
    shot.last_refusal = context.last_refusal;
    return shot;
}

}  // namespace gradsieve::exchange

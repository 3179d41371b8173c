// How frames reach the parts of one job's machine. Nothing in a frame is believed: what does not parse, comes from a
// stranger or from another epoch is counted, named and dropped. One thread; owned by JobMachine.
#include "exchange/job_machine_impl.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

/// Frames kept for members that started before us; the sender is bounded by its credit window anyway.
constexpr std::size_t kEarlyFramesLimit = 4096;

/// Answers of an ended machine that wait to be taken: whoever keeps it without taking them holds no more than these.
constexpr std::size_t kAnswersLimit = 64;

/// Hands a message on if it parsed, else counts it.
template <typename T, typename Use>
void take(JobContext& context, PeerIndex from, const Result<T>& parsed, const Use& use) {
    if (parsed.is_ok())
        use(*parsed);
    else
        context.refuse(from, parsed.error().text());
}

}  // namespace

void JobMachine::Impl::on_frame(const Early& frame, TimePoint now) {
    if (frame.from >= context.nodes.size() || frame.from == context.self) return;
    const auto type = static_cast<FrameType>(frame.type);
    const auto hash = job_of_frame(frame.body.bytes());
    if (!hash) return context.refuse(frame.from, "body of less than 8 bytes");
    if (type == FrameType::kPrepared) return on_prepared(frame.from, frame.body.bytes(), now);
    if (*hash != context.hash) return context.refuse(frame.from, "meant for another job");
    if (phase == Phase::kEnded) return answer_after_end(frame);
    if (type == FrameType::kRefuse) return on_refuse(frame.from, frame.body.bytes());
    if (type == FrameType::kStart) return on_start(frame, now);
    if (phase == Phase::kForming) return keep_early(frame);
    if (frame.epoch != context.epoch)
        return context.refuse(frame.from, frame_type_name(frame.type) + " of another epoch: allowed is the job's own");
    const auto member = context.member_of(frame.from);
    if (!member) return context.refuse(frame.from, frame_type_name(frame.type) + " of a node without ranks in the job");
    context.peers[frame.from].last_heard = now;
    on_member_frame(*member, frame, now);
}

void JobMachine::Impl::keep_early(const Early& frame) {
    const auto bytes = frame.body.bytes().size();
    if (frame.epoch == 0 || early.size() >= kEarlyFramesLimit ||
        early_bytes + bytes > context.nodes.size() * (context.limits.credit_bytes + context.limits.frame_target_bytes))
        return context.refuse(frame.from, frame_type_name(frame.type) + " before the job's start");
    early_bytes += bytes;
    early.push_back(frame);
}

void JobMachine::Impl::on_prepared(PeerIndex from, ByteView body, TimePoint now) {
    auto parsed = parse_prepared(body);
    if (!parsed.is_ok()) return context.refuse(from, parsed.error().text());
    auto& prepared = *parsed;
    if (prepared.key.name != context.key.name || phase == Phase::kEnded) return;
    const auto their_hash = job_hash(prepared.key);
    if (their_hash != job_of_frame(body)) return context.refuse(from, "announcement with another job's hash");
    if (prepared.key != context.key) {
        const auto text = "job '" + context.key.name + "' is " + (phase == Phase::kForming ? "forming" : "running") +
                          " on " + context.node_text(context.self) + " with run id '" + context.key.run_id +
                          "', and this is run '" + prepared.key.run_id +
                          "': end the other run, or give all ranks the same run id";
        if (phase == Phase::kForming) return context.refuse(from, text);
        if (leaving_since) return;  // all of its ranks have detached: it keeps nobody out
        return context.send_announcement(
            from, FrameType::kRefuse,
            build_message(their_hash, Reason{.code = StatusCode::kAlreadyExists, .text = text}));
    }
    if (phase == Phase::kRunning) return on_prepared_while_running(from, prepared, now);
    formation.on_prepared(from, std::move(prepared), now);
    start_if_ready(now);
}

void JobMachine::Impl::on_prepared_while_running(PeerIndex from, const Prepared& prepared, TimePoint now) {
    if (prepared.ranks.empty() && !context.member_of(from)) return;
    const auto member = std::ranges::find(start->members, from, &StartMember::peer);
    if (member == start->members.end()) {
        const Reason reason{.code = StatusCode::kAlreadyExists,
                            .text = "job '" + context.key.name + "' is running on " + context.node_text(context.self) +
                                    " with all of its ranks: end it first, or give the new run another run id"};
        return context.send_announcement(from, FrameType::kRefuse, build_message(context.hash, reason));
    }
    const bool is_heard = context.peers[from].last_heard.has_value();
    if (prepared.nonce != member->nonce) {
        // All of its ranks have left our run, and it forms the next one already: nothing of ours is broken by that, and
        // it announces itself again to who ends later.
        const auto number = context.member_of(from);
        const auto is_needed = [&](const auto& rounds) { return rounds.waits_for(*number); };
        if (number && context.is_gone(*number) && std::ranges::none_of(group_rounds, is_needed)) return;
        if (!prepared.ranks.empty() && formation.is_new_life(from, prepared))
            fail_peer(from,
                      context.node_text(from) + " began job '" + context.key.name +
                          "' anew in the middle of it: start the job again on all nodes: it goes on from the last step "
                          "whose state all nodes kept",
                      now);
        return;
    }
    if (is_heard) return;
    if (prepared.ranks == member->ranks) return send_start(from);
    if (context.own == 0 && formation.is_news(from, prepared))  // only who made the start knows what it was made from
        context.fail(StatusCode::kPeerFailed,
                     "ranks on " + context.node_text(from) + " changed while the job started: start the job again");
}

void JobMachine::Impl::on_start(const Early& frame, TimePoint now) {
    const auto parsed = parse_start(frame.body.bytes());
    if (!parsed.is_ok()) return context.refuse(frame.from, parsed.error().text());
    if (phase == Phase::kRunning && frame.epoch == context.epoch) return;
    const bool is_from_member =
        std::ranges::find(parsed->members, frame.from, &StartMember::peer) != parsed->members.end();
    if (phase != Phase::kForming || frame.epoch == 0 || !is_from_member)
        return context.refuse(frame.from, "start of another epoch");
    const auto status = formation.check_start(*parsed);
    if (status.code() == StatusCode::kFailedPrecondition) return context.fail(StatusCode::kPeerFailed, status.text());
    if (!status.is_ok()) return context.refuse(frame.from, status.text());
    begin(*parsed, frame.epoch, now);
    if (const auto member = context.member_of(frame.from)) context.peers[frame.from].last_heard = now;
}

void JobMachine::Impl::on_refuse(PeerIndex from, ByteView body) {
    const auto reason = parse_reason(body);
    if (!reason.is_ok()) return context.refuse(from, reason.error().text());
    const bool is_missing = context.member_of(from) && !context.peers[from].last_heard;
    if (reason->code == StatusCode::kOk || (phase == Phase::kRunning && !is_missing))
        return context.refuse(from, "refusal of a job that is running: " + reason->text);
    if (phase == Phase::kForming) return finish(reason->status());
    context.fail(reason->code, reason->text);
}

/// Ended here, but the sender does not know: it hears the end once per frame of its own, and gets what it fetches.
void JobMachine::Impl::answer_after_end(const Early& frame) {
    const auto type = static_cast<FrameType>(frame.type);
    const auto member = context.member_of(frame.from);
    if (!start || frame.epoch != context.epoch || !member || context.actions.size() >= kAnswersLimit) return;
    if (type == FrameType::kFetch || type == FrameType::kCredit) return on_round_frame(*member, frame, started_at);
    if (decision->has_given_up()) return;  // we know nothing that others should go by
    const bool is_waiting = type == FrameType::kProgress || type == FrameType::kQuery ||
                            type == FrameType::kComplaint || type == FrameType::kRecords || type == FrameType::kCheck;
    if (!is_waiting) return;
    if (decision->is_decided()) return decision->resend_to(*member, started_at);
    if (end->is_ok()) return context.send(frame.from, FrameType::kDetached, 0, detached_body());
    context.send(frame.from, FrameType::kEnd, 0,
                 build_message(context.hash, Reason{.code = end->code(), .text = end->text()}));
}

void JobMachine::Impl::on_member_frame(std::size_t from, const Early& frame, TimePoint now) {
    const auto bytes = frame.body.bytes();
    switch (static_cast<FrameType>(frame.type)) {
        case FrameType::kRecords:
        case FrameType::kRelay:
        case FrameType::kBroadcast: return on_data(from, frame, now);
        case FrameType::kDetached:
            return take(context, frame.from, parse_detached(bytes),
                        [&](const auto& value) { on_detached(from, value, now); });
        case FrameType::kRankDied:
            return take(context, frame.from, parse_rank_died(bytes), [&](const auto& value) {
                if (!context.member_with(value.rank)) return context.refuse(frame.from, "death of an unknown rank");
                on_rank_died(value.rank, value.text, frame.from);
            });
        case FrameType::kEnd:
            return take(context, frame.from, parse_reason(bytes),
                        [&](const auto& value) { on_end(frame.from, value); });
        case FrameType::kBroadcastAsk:
            return take(context, frame.from, parse_broadcast_ask(bytes),
                        [&](const auto& value) { sides.on_broadcast_ask(from, frame.step, value, now); });
        case FrameType::kCheck:
            return take(context, frame.from, parse_check(bytes),
                        [&](const auto& value) { sides.on_check(from, frame.step, value, now); });
        case FrameType::kSnapshotAsk:
            return take(context, frame.from, parse_snapshot_ask(bytes),
                        [&](const auto& value) { snapshots.on_ask(from, frame.step, value, now); });
        case FrameType::kSnapshotAnswer:
            return take(context, frame.from, parse_snapshot_answer(bytes),
                        [&](const auto& value) { snapshots.on_answer(from, frame.step, value); });
        case FrameType::kSnapshotKept:
            return take(context, frame.from, parse_snapshot_ask(bytes),
                        [&](const auto& value) { snapshots.on_kept(from, frame.step, value); });
        case FrameType::kComplaint:
        case FrameType::kQuery:
        case FrameType::kReport:
        case FrameType::kVerdict: return on_decision_frame(from, frame, now);
        default: return on_round_frame(from, frame, now);
    }
}

void JobMachine::Impl::on_round_frame(std::size_t from, const Early& frame, TimePoint now) {
    const auto bytes = frame.body.bytes();
    switch (static_cast<FrameType>(frame.type)) {
        case FrameType::kAck:
            return take(context, frame.from, parse_ack(bytes),
                        [&](const auto& value) { on_ack(from, frame.step, value, now); });
        case FrameType::kCredit:
            return take(context, frame.from, parse_credit(bytes), [&](const auto& value) {
                outbox.on_credit(frame.from, value.stream, frame.step, value.bytes);
            });
        case FrameType::kProgress:
            return take(context, frame.from, parse_progress(bytes),
                        [&](const auto& value) { on_progress(from, frame.step, value, now); });
        case FrameType::kFetch:
            return take(context, frame.from, parse_fetch(bytes), [&](const auto& value) {
                if (value.wants.empty() || value.wants.front().tensor >= context.group_of.size())
                    return context.refuse(frame.from, "fetch of a tensor that is not in the job");
                group_rounds[context.group_of[value.wants.front().tensor]].on_fetch(from, frame.step, value);
            });
        default: return context.refuse(frame.from, "unknown frame type " + std::to_string(frame.type));
    }
}

void JobMachine::Impl::on_decision_frame(std::size_t from, const Early& frame, TimePoint now) {
    const auto bytes = frame.body.bytes();
    switch (static_cast<FrameType>(frame.type)) {
        case FrameType::kComplaint:
            return take(context, frame.from, parse_complaint(bytes),
                        [&](const auto& value) { decision->on_complaint(from, value, now); });
        case FrameType::kQuery:
            return take(context, frame.from, parse_query(bytes),
                        [&](const auto& value) { decision->on_query(from, value, now); });
        case FrameType::kReport:
            return take(context, frame.from, parse_report(bytes),
                        [&](const auto& value) { decision->on_report(from, value, now); });
        default:
            return take(context, frame.from, parse_verdict(bytes),
                        [&](const auto& value) { decision->on_verdict(from, value, now); });
    }
}

void JobMachine::Impl::on_data(std::size_t from, const Early& frame, TimePoint now) {
    const auto type = static_cast<FrameType>(frame.type);
    const auto prefix = parse_data_prefix(frame.body.bytes(), type == FrameType::kRelay);
    if (!prefix.is_ok()) return context.refuse(frame.from, prefix.error().text());
    const bool is_credit_wanted = (prefix->flags & kFlagCreditWanted) != 0;
    if (type == FrameType::kBroadcast) {
        const auto piece = parse_broadcast_piece(frame.body.bytes());
        if (!piece.is_ok()) return context.refuse(frame.from, piece.error().text());
        outbox.on_received(frame.from, kBroadcastStream, frame.step, frame.body.bytes().size() - piece->header_bytes,
                           is_credit_wanted);
        return sides.on_broadcast_piece(from, frame.step, frame.body, now);
    }
    const auto origin = type == FrameType::kRelay ? context.member_of(prefix->origin) : std::optional(from);
    RecordReader reader(frame.body, prefix->first_byte);
    const auto first = reader.next();
    ByteCount payload_bytes = first ? first->header.payload_bytes : 0;
    while (const auto record = reader.next()) payload_bytes += record->header.payload_bytes;
    if (!origin || !first || !reader.is_ok() || first->header.tensor >= context.group_of.size())
        return context.refuse(frame.from, "records that do not parse, or of a tensor that is not in the job");
    auto& rounds = group_rounds[context.group_of[first->header.tensor]];
    outbox.on_received(frame.from, kFirstGroupStream + context.group_of[first->header.tensor], frame.step,
                       payload_bytes, is_credit_wanted);
    rounds.on_records(from, *origin, frame.step, frame.body, prefix->first_byte, now);
}

GroupRounds* JobMachine::Impl::rounds_of_stream(Stream stream) {
    if (stream < kFirstGroupStream || stream - kFirstGroupStream >= group_rounds.size()) return nullptr;
    return &group_rounds[stream - kFirstGroupStream];
}

void JobMachine::Impl::on_ack(std::size_t from, Step step, const Ack& ack, TimePoint now) {
    if (ack.stream < kFirstGroupStream) return sides.on_ack(from, step, ack.stream);
    auto* rounds = rounds_of_stream(ack.stream);
    if (rounds == nullptr) return context.refuse(context.members[from].peer, "acknowledgement for an unknown group");
    rounds->on_ack(from, step, ack, now);
}

/// Progress of side rounds only asks whether we still have the job.
void JobMachine::Impl::on_progress(std::size_t from, Step step, const Progress& progress, TimePoint now) {
    const auto peer = context.members[from].peer;
    if (auto* rounds = rounds_of_stream(progress.stream)) return rounds->on_progress(from, step, progress, now);
    if (progress.stream >= kFirstGroupStream) return context.refuse(peer, "progress of an unknown group");
    if (progress.is_reply) return;
    context.send(peer, FrameType::kProgress, step,
                 build_message(context.hash, Progress{.stream = progress.stream, .is_reply = true, .late_ranks = {}}));
}

void JobMachine::Impl::on_detached(std::size_t from, const Detached& detached, TimePoint now) {
    bool is_news = false;
    for (const auto& entry : detached.ranks) {
        const auto member = context.member_with(entry.rank);
        if (!member || entry.last_steps.size() != group_rounds.size() ||
            (*member == context.own && !context.detached.contains(entry.rank))) {
            context.refuse(context.members[from].peer, "news of a rank that has not detached");
            continue;
        }
        is_news = context.detached.emplace(entry.rank, entry).second || is_news;
    }
    if (is_news) on_members_changed(now);
}

void JobMachine::Impl::on_end(PeerIndex from, const Reason& reason) {
    const auto status =
        reason.code == StatusCode::kOk ? Status(StatusCode::kUnavailable, reason.text) : reason.status();
    context.send_to_members(FrameType::kEnd, 0,
                            build_message(context.hash, Reason{.code = status.code(), .text = status.text()}), from);
    finish(status);
}

std::uint64_t job_hash(const JobKey& key) noexcept {
    return mix64(tensor_id(key.name) ^ mix64(tensor_id(key.run_id) + 1));
}

std::optional<std::uint64_t> job_of_frame(ByteView body) noexcept {
    ByteReader reader(body);
    const auto hash = reader.read<std::uint64_t>();
    if (!reader.is_ok()) return std::nullopt;
    return hash;
}

std::optional<ByteCount> credited_bytes(std::uint16_t type, ByteView body) noexcept {
    if (type != static_cast<std::uint16_t>(FrameType::kCredit)) return std::nullopt;
    const auto credit = parse_credit(body);
    if (!credit.is_ok() || credit->stream < kFirstGroupStream) return std::nullopt;
    return credit->bytes;
}

bool is_for_every_job(std::uint16_t type) noexcept { return type == static_cast<std::uint16_t>(FrameType::kPrepared); }

std::string frame_type_name(std::uint16_t type) {
    switch (static_cast<FrameType>(type)) {
        case FrameType::kPrepared: return "prepared";
        case FrameType::kStart: return "start";
        case FrameType::kRefuse: return "refuse";
        case FrameType::kRecords: return "records";
        case FrameType::kRelay: return "relay";
        case FrameType::kAck: return "acknowledgement";
        case FrameType::kCredit: return "credit";
        case FrameType::kProgress: return "progress";
        case FrameType::kFetch: return "fetch";
        case FrameType::kComplaint: return "complaint";
        case FrameType::kQuery: return "query";
        case FrameType::kReport: return "report";
        case FrameType::kVerdict: return "verdict";
        case FrameType::kRankDied: return "rank-died";
        case FrameType::kDetached: return "detached";
        case FrameType::kEnd: return "end";
        case FrameType::kBroadcastAsk: return "broadcast-ask";
        case FrameType::kBroadcast: return "broadcast";
        case FrameType::kCheck: return "check";
        case FrameType::kSnapshotAsk: return "snapshot-ask";
        case FrameType::kSnapshotAnswer: return "snapshot-answer";
        case FrameType::kSnapshotKept: return "snapshot-kept";
    }
    return "unknown (" + std::to_string(type) + ")";
}

}  // namespace gradsieve::exchange

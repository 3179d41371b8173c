// A group's dealings with the other members: records, acknowledgements, progress, re-sending.
// One thread; owned by JobMachine.
#include "exchange/group_rounds.hpp"

#include <algorithm>

namespace gradsieve::exchange {

/// Numbers in a record are believed only as far as the agreed table of tensors bears them out.
bool GroupRounds::is_sound(const Record& record, std::size_t origin) const {
    const auto& header = record.header;
    if (header.tensor >= context_.group_of.size() || context_.group_of[header.tensor] != group_) return false;
    if (header.kind == RecordKind::kMark)
        return header.chunk <= static_cast<std::uint32_t>(StatusCode::kCancelled) &&
               (header.chunk != 0 || header.payload_bytes == 0);
    const auto tiles =
        context_.spec.tensors[context_.tensor_of(header.tensor)].elements() / kTileElements + 1;  // no chunk is less
    if (!context_.is_for(header.tensor, header.chunk, context_.own) ||
        !context_.is_of(header.tensor, header.chunk, origin))
        return false;
    const bool has_count = header.kind == RecordKind::kLast || header.kind == RecordKind::kLastOfCount;
    return header.chunk < tiles && (!has_count || (header.count > 0 && header.count <= header.chunk + 1));
}

void GroupRounds::on_records(std::size_t from, std::size_t origin, Step step, const SharedView& body,
                             std::size_t first_byte, TimePoint now) {
    const auto sender = context_.members[from].peer;
    if (step < current_.step) return take_late(from, origin, step);
    if (step > current_.step)
        return context_.refuse(sender, "records of step " + std::to_string(step) + " before step " +
                                           std::to_string(current_.step) + " is done: allowed is that step");
    if (origin == context_.own || (origin != from && !source_))
        return context_.refuse(
            sender, "payloads of " + context_.node_text(context_.members[origin].peer) + " that were not asked for");
    open(now);
    for (std::size_t member = 0; member < context_.members.size(); ++member) infer_done(member, step - 1);
    release_retained(now);
    std::optional<Status> fatal;
    std::vector<std::uint32_t> touched;
    RecordReader reader(body, first_byte);
    while (const auto record = reader.next()) {
        const auto tensor = record->header.tensor;
        if (!is_sound(*record, origin)) {
            context_.refuse(sender, "record of tensor " + std::to_string(tensor) + ", chunk " +
                                        std::to_string(record->header.chunk) +
                                        ": not in the job's table, or another node's shard");
            continue;
        }
        if (origin != from && context_.is_scattered(tensor) && !is_failure(record->header)) {
            context_.refuse(sender,
                            context_.tensor_text(tensor) + ": another node's chunks, which are nobody's to relay");
            continue;
        }
        const auto position = context_.position_of[tensor];
        auto& assembly = current_.payloads[position].from[origin];
        const bool is_first = assembly.is_empty();
        const auto taken = assembly.take(*record);
        if (taken == Assembly::Taken::kConflict)
            context_.refuse(sender, context_.tensor_text(tensor) + ", chunk " + std::to_string(record->header.chunk) +
                                        ": differs from what was sent before");
        if (taken != Assembly::Taken::kNew) continue;
        if (context_.watcher != nullptr)
            context_.watcher->on_record_in(context_.tensor_of(tensor), step, context_.members[origin].peer,
                                           is_first && !context_.is_second(tensor),
                                           assembly.is_complete() && context_.is_final(tensor));
        touched.push_back(position);
        if (assembly.failure() && is_fatal(*assembly.failure()) && !fatal) fatal = assembly.failure();
    }
    if (fatal && !is_frozen_) return abort_step(*fatal, now);
    for (const auto position : touched)
        if (current_.step == step) advance(position, now);
}

/// The sender may not have our acknowledgement: it goes again.
void GroupRounds::take_late(std::size_t from, std::size_t origin, Step step) {
    if (from == origin && step == done_step()) send_ack(context_.members[from].peer);
}

void GroupRounds::send_ack(PeerIndex to) const {
    if (last_ack_) context_.send(to, FrameType::kAck, done_step(), build_message(context_.hash, *last_ack_));
}

Round* GroupRounds::round_of(Step step) {
    if (step == current_.step) return &current_;
    for (auto& round : retained_)
        if (round.step == step) return &round;
    return nullptr;
}

void GroupRounds::on_ack(std::size_t from, Step step, const Ack& ack, TimePoint now) {
    const auto sender = context_.members[from].peer;
    if (step > current_.step)
        return context_.refuse(sender, "acknowledgement of step " + std::to_string(step) + ": the open step is " +
                                           std::to_string(current_.step));
    outbox_.on_acknowledged(sender, stream(), step);
    auto* round = round_of(step);
    if (round == nullptr) return;
    auto& known = round->acks[from];
    if (!known || !known->digest)
        known = Round::Acknowledgement{.is_aborted = ack.is_aborted, .digest = ack.digest, .is_compared = false};
    if (round == &current_) return;
    compare_digests(*round, from);
    release_retained(now);
}

void GroupRounds::compare_digests(Round& round, std::size_t member) {
    auto& ack = round.acks[member];
    if (!ack || !ack->digest || ack->is_compared) return;
    ack->is_compared = true;
    ++context_.digests_compared;
    if (ack->is_aborted == round.is_aborted && *ack->digest == round.digest) return;
    ++context_.digests_different;
    const auto other = context_.members[member].peer;
    context_.fail(StatusCode::kMismatch,
                  context_.step_text(group_, round.step) + ": the result on " +
                      context_.node_text(std::min(context_.self, other)) + " differs from that on " +
                      context_.node_text(std::max(context_.self, other)) +
                      ": all nodes must end a step with the same bits; report it, and restart from a checkpoint");
}

/// What a member did next shows that it is done with `step`, although its acknowledgement did not arrive.
void GroupRounds::infer_done(std::size_t member, Step step) {
    for (auto& round : retained_)
        if (round.step <= step && !round.acks[member]) {
            round.acks[member] = Round::Acknowledgement{};
            outbox_.on_acknowledged(context_.members[member].peer, stream(), round.step);
        }
}

void GroupRounds::release_retained(TimePoint now) {
    if (retained_.empty()) return;
    // A failed member still owes its acknowledgement: it may be alive behind a broken link, without that step.
    const auto is_done = [this](const Round& round) {
        for (std::size_t member = 0; member < context_.members.size(); ++member)
            if (member != context_.own && !context_.is_gone(member) && !round.acks[member]) return false;
        return true;
    };
    while (!retained_.empty() && is_done(retained_.front())) retained_.pop_front();
    if (retained_.empty()) advance_all(now);
}

bool GroupRounds::owes(std::size_t member) const {
    if (member == context_.own || !context_.is_active(member)) return false;
    return (encoded_ > 0 && !current_.acks[member]) ||
           std::ranges::any_of(retained_, [member](const Round& round) { return !round.acks[member]; });
}

bool GroupRounds::is_acknowledged() const {
    for (std::size_t member = 0; member < context_.members.size(); ++member)
        for (const auto& round : retained_)
            if (member != context_.own && context_.is_active(member) && !round.acks[member]) return false;
    return true;
}

void GroupRounds::on_progress(std::size_t from, Step step, const Progress& progress, TimePoint now) {
    const auto sender = context_.members[from].peer;
    if (step > current_.step + 1)
        return context_.refuse(
            sender, "progress of step " + std::to_string(step) + ": the open step is " + std::to_string(current_.step));
    if (step > 0) infer_done(from, step - 1);
    if (step == current_.step) {
        if (!progress.is_reply) open(now);
        current_.progress[from] = {.is_submitted = progress.is_submitted, .late_ranks = progress.late_ranks};
    } else if (step == current_.step + 1) {  // it is done with our open step, so everybody has handed in
        for (auto& remote : current_.progress) remote = {.is_submitted = true, .late_ranks = {}};
    }
    release_retained(now);
    if (!progress.is_reply) send_progress(from, true);
}

void GroupRounds::on_fetch(std::size_t from, Step step, const Fetch& fetch) {
    auto* round = round_of(step);
    const auto to = context_.members[from].peer;
    if (round == nullptr) return;
    std::set<OutKey> keys;
    for (const auto& want : fetch.wants) {
        const auto origin = context_.member_of(want.origin);
        if (!origin || want.tensor >= context_.group_of.size() || context_.group_of[want.tensor] != group_) {
            context_.refuse(to, "fetch of a payload that is not in the job");
            continue;
        }
        const auto& assembly = round->payloads[context_.position_of[want.tensor]].from[*origin];
        const bool is_relay = *origin != context_.own;
        if (!assembly.is_complete() || (is_relay && context_.is_scattered(want.tensor))) continue;
        const auto out_key = key(step, *origin);
        if (keys.insert(out_key).second) outbox_.forget(to, out_key);
        for (const auto& record : is_relay ? assembly.records(want.tensor) : records_for(from, want.tensor, assembly))
            send_record(from, out_key, record);
    }
    for (const auto& out_key : keys) outbox_.complete(to, out_key);
}

void GroupRounds::resend_to(std::size_t member) {
    const auto to = context_.members[member].peer;
    send_ack(to);
    const auto resend = [&](const Round& round) {
        if (round.acks[member] || !context_.is_active(member)) return;
        const auto out_key = key(round.step, context_.own);
        outbox_.forget(to, out_key);
        for (std::size_t position = 0; position < round.payloads.size(); ++position) {
            const auto& own = round.payloads[position].from[context_.own];
            if (!own.is_complete()) continue;
            for (const auto& record : records_for(member, context_.payloads_of[group_][position], own))
                send_record(member, out_key, record);
        }
        outbox_.complete(to, out_key);
    };
    for (const auto& round : retained_) resend(round);
    resend(current_);
}

void GroupRounds::on_members_changed(TimePoint now) {
    if (!is_frozen_ && current_.has_submission())
        if (const auto doom = doom_of_step(context_, group_, current_.step)) abort_step(*doom, now);
    release_retained(now);
}

}  // namespace gradsieve::exchange

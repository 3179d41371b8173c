// A group's path of one step: hand-in, coding, decoding, commit. One thread; owned by JobMachine.
#include "exchange/group_rounds.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

/// Failed steps that late ranks may still ask for; a rank further behind than this gets invalid-argument.
constexpr std::size_t kAbortedStepsKept = 1024;
/// The non-finite policy under which a step without a result goes on.
constexpr std::uint8_t kSkipStep = 1;

}  // namespace

GroupRounds::GroupRounds(JobContext& context, Outbox& outbox, GroupNumber group)
    : context_(context),
      outbox_(outbox),
      group_(group),
      current_(new_round(context.first_steps[group])),
      is_encoding_(context.payloads_of[group].size(), false),
      is_decoding_(context.payloads_of[group].size(), false),
      committed_(context.first_steps[group] - 1) {}

Round GroupRounds::new_round(Step step) const {
    const auto& payloads = context_.payloads_of[group_];
    const auto seconds = std::ranges::count_if(payloads, [this](auto number) { return context_.is_second(number); });
    return Round(step, payloads.size(), static_cast<std::size_t>(seconds), context_.members.size(),
                 context_.members[context_.own].ranks.size());
}

OutKey GroupRounds::key(Step step, std::size_t origin) const {
    return {.step = step, .stream = stream(), .origin = context_.members[origin].peer};
}

void GroupRounds::open(TimePoint now) {
    if (!current_.opened_at) current_.opened_at = now;
}

Status GroupRounds::on_submitted(Rank rank, TensorNumber tensor, Step step, TimePoint now) {
    const auto subject = context_.tensor_text(tensor) + ", " + context_.step_text(group_, step);
    if (const auto found = aborted_.find(step); found != aborted_.end()) return found->second;
    if (step == current_.step + 1)
        return {StatusCode::kBusy, subject + ": step " + std::to_string(current_.step) +
                                       " is still open: wait for all of its tensors, then submit again"};
    if (step != current_.step)
        return {StatusCode::kInvalidArgument, subject + ": the next step is " + std::to_string(current_.step) +
                                                  ": number the steps of a group without gaps"};
    if (const auto doom = doom_of_step(context_, group_, step)) return *doom;
    const auto position = context_.position_of[tensor];
    const auto& ranks = context_.members[context_.own].ranks;
    const auto local = static_cast<std::size_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
    auto& round = current_.payloads[position];
    if (round.submitted[local])
        return {StatusCode::kBusy,
                subject + ": rank " + std::to_string(rank) + " has handed it in already: wait for its result first"};
    round.submitted[local] = true;
    open(now);
    advance(position, now);
    return {};
}

void GroupRounds::on_encoded(TensorNumber tensor, Step step, std::vector<std::pair<std::uint32_t, SharedView>> chunks,
                             TimePoint now) {
    const auto position = take_unanswered(is_encoding_, tensor);
    auto& round = current_.payloads[position];
    const auto number = context_.payloads_of[group_][position];
    if (step == current_.step && round.is_encode_requested && !round.is_encoded)
        send_own(number, records_of_chunks(number, std::move(chunks)));
    advance(context_.position_of[tensor], now);
}

void GroupRounds::on_encode_failed(TensorNumber tensor, Step step, const Status& status, TimePoint now) {
    const auto position = take_unanswered(is_encoding_, tensor);
    const auto number = context_.payloads_of[group_][position];
    auto& round = current_.payloads[position];
    if (step != current_.step || !round.is_encode_requested || round.is_encoded)
        return advance(context_.position_of[tensor], now);
    auto named = status.with_context(context_.tensor_text(number) + " on " + context_.node_text(context_.self));
    send_own(number, {mark_of_failure(number, named)});
    if (is_fatal(named) && !is_frozen_) return abort_step(named, now);
    advance(context_.position_of[tensor], now);
}

/// Which of the tensor's phases an answer is for: one at a time is unanswered.
std::uint32_t GroupRounds::take_unanswered(std::vector<bool>& inout_flags, TensorNumber tensor) const {
    auto position = context_.position_of[tensor];
    if (!inout_flags[position] && context_.second_of[tensor])
        position = context_.position_of[*context_.second_of[tensor]];
    inout_flags[position] = false;
    return position;
}

void GroupRounds::send_own(PayloadNumber number, const std::vector<Record>& records) {
    auto& round = current_.payloads[context_.position_of[number]];
    round.is_encoded = true;
    ++encoded_;
    const bool is_last = encoded_ == current_.payloads.size();
    for (const auto& record : records) (void)round.from[context_.own].take(record);
    for (std::size_t member = 0; member < context_.members.size(); ++member) {
        if (member == context_.own || !context_.is_active(member)) continue;
        for (const auto& record : records_for(member, number, round.from[context_.own]))
            send_record(member, key(current_.step, context_.own), record);
        if (is_last || is_failure(records.front().header))
            outbox_.complete(context_.members[member].peer, key(current_.step, context_.own));
    }
}

/// What of our payload that member gets.
std::vector<Record> GroupRounds::records_for(std::size_t member, PayloadNumber number, const Assembly& own) const {
    if (own.failure() || !context_.is_scattered(number)) return own.records(number);
    return records_of_chunks(number, chunks_for(member, number, own));
}

GroupRounds::Chunks GroupRounds::chunks_for(std::size_t member, PayloadNumber number, const Assembly& assembly) const {
    auto chunks = assembly.chunks();
    std::erase_if(chunks, [&](const auto& chunk) { return !context_.is_for(number, chunk.first, member); });
    return chunks;
}

void GroupRounds::send_record(std::size_t member, const OutKey& out_key, const Record& record) {
    OutRecord out{
        .tensor = record.header.tensor, .chunk = record.header.chunk, .header = {}, .payload = record.payload};
    build_record_header(out.header, record.header);
    outbox_.add(context_.members[member].peer, out_key, std::move(out));
}

/// A failure that no policy turns into a result: the step has none on any node.
bool GroupRounds::is_fatal(const Status& failure) const {
    return failure.code() != StatusCode::kNonFinite || context_.spec.non_finite_policy == 0;
}

void GroupRounds::advance_all(TimePoint now) {
    const auto step = current_.step;
    for (const auto& payload : current_.payloads)
        for (const auto& assembly : payload.from)
            if (assembly.failure() && is_fatal(*assembly.failure()) && !is_frozen_)
                return abort_step(*assembly.failure(), now);
    for (std::uint32_t position = 0; position < current_.payloads.size() && current_.step == step; ++position)
        advance(position, now);
}

void GroupRounds::advance(std::uint32_t position, TimePoint now) {
    if (is_frozen_) return;
    const auto number = context_.payloads_of[group_][position];
    request_encode(position);
    request_decode(position);
    if (!context_.is_final(number)) {
        position = context_.position_of[*context_.second_of[number]];
        request_encode(position);
        request_decode(position);
    }
    deliver(position, now);
}

/// A phase's coding and decoding leave for the next one what another step's would overwrite.
bool GroupRounds::is_at_work(TensorNumber tensor) const {
    const auto first = context_.position_of[tensor];
    if (!context_.second_of[tensor]) return is_encoding_[first];
    const auto second = context_.position_of[*context_.second_of[tensor]];
    return is_encoding_[first] || is_encoding_[second] || is_decoding_[first] || is_decoding_[second];
}

void GroupRounds::request_encode(std::uint32_t position) {
    auto& round = current_.payloads[position];
    const auto number = context_.payloads_of[group_][position];
    const auto tensor = context_.tensor_of(number);
    if (round.is_encode_requested || is_at_work(tensor) || !retained_.empty() || !round.is_submitted()) return;
    if (context_.is_second(number)) {
        const auto& first = current_.payloads[context_.position_of[tensor]];
        if (!first.is_decoded) return;
        if (const auto failure = failure_of(number, first)) {
            round.is_encode_requested = true;
            return send_own(number, {mark_of_failure(number, *failure)});
        }
    }
    round.is_encode_requested = true;
    is_encoding_[position] = true;
    context_.actions.emplace_back(EncodeTensor{.tensor = tensor,
                                               .step = current_.step,
                                               .phase = static_cast<std::uint8_t>(context_.is_second(number) ? 1 : 0)});
}

/// Why there is nothing to send in the phase after that one: it failed here, or no number comes of the step at all. A
/// shard's mean is there whatever became of this node's part of it.
std::optional<Status> GroupRounds::failure_of(PayloadNumber second, const TensorRound& first) const {
    const auto& own = first.from[context_.own].failure();
    if (own && context_.owners_of[context_.tensor_of(second)].empty()) return own;
    if (context_.spec.non_finite_policy != kSkipStep) return std::nullopt;
    for (const auto& assembly : first.from)
        if (assembly.failure()) return assembly.failure();
    return std::nullopt;
}

void GroupRounds::request_decode(std::uint32_t position) {
    auto& round = current_.payloads[position];
    const auto number = context_.payloads_of[group_][position];
    const auto tensor = context_.tensor_of(number);
    const bool is_busy = is_decoding_[position] || (context_.second_of[tensor] && is_at_work(tensor));
    if (round.is_decode_requested || is_busy || !round.is_complete()) return;
    round.is_decode_requested = true;
    const bool has_failure =
        std::ranges::any_of(round.from, [](const Assembly& assembly) { return assembly.failure().has_value(); });
    if (has_failure && context_.spec.non_finite_policy == kSkipStep) {  // no numbers to add: delivered as NaN
        round.is_decoded = true;
        ++decoded_;
        return;
    }
    is_decoding_[position] = true;
    DecodeTensor decode{.tensor = tensor,
                        .step = current_.step,
                        .payloads = {},
                        .phase = static_cast<std::uint8_t>(context_.is_second(number) ? 1 : 0)};
    for (std::size_t member = 0; member < context_.members.size(); ++member)
        decode.payloads.push_back(
            {.peer = context_.members[member].peer, .chunks = chunks_for(context_.own, number, round.from[member])});
    context_.actions.emplace_back(std::move(decode));
}

void GroupRounds::on_decoded(TensorNumber tensor, Step step, std::uint64_t digest, const Status& status,
                             TimePoint now) {
    const auto position = take_unanswered(is_decoding_, tensor);
    auto& round = current_.payloads[position];
    if (step == current_.step && round.is_decode_requested && !round.is_decoded) {
        if (!status.is_ok())
            return context_.fail(status.code(), context_.tensor_text(context_.payloads_of[group_][position]) + ", " +
                                                    context_.step_text(group_, step) + ": decoding failed on " +
                                                    context_.node_text(context_.self) + ": " + status.text());
        round.is_decoded = true;
        round.digest = digest;
        ++decoded_;
    }
    advance(context_.position_of[tensor], now);
}

void GroupRounds::deliver(std::uint32_t position, TimePoint now) {
    if (decoded_ == current_.payloads.size()) return finish_step(now);
    auto& round = current_.payloads[position];
    const auto number = context_.payloads_of[group_][position];
    if (!round.is_decoded || round.is_delivered || !context_.is_final(number)) return;
    round.is_delivered = true;
    const bool is_nan =
        std::ranges::any_of(round.from, [](const Assembly& assembly) { return assembly.failure().has_value(); });
    context_.actions.emplace_back(
        DeliverResult{.tensor = context_.tensor_of(number),
                      .step = current_.step,
                      .status = {},
                      .fill_not_a_number = is_nan && context_.spec.non_finite_policy == kSkipStep});
}

void GroupRounds::finish_step(TimePoint now) {
    std::optional<Status> skipped;
    for (const auto& payload : current_.payloads) {
        current_.digest += payload.digest;
        for (const auto& assembly : payload.from)
            if (assembly.failure() && !skipped && context_.spec.non_finite_policy == kSkipStep)
                skipped = assembly.failure();
    }
    if (skipped) {
        current_.is_aborted = true;
        ++context_.steps_aborted;
        context_.actions.emplace_back(AbortStep{.group = group_, .step = current_.step, .status = *skipped});
    } else {
        committed_ = current_.step;
        ++context_.steps_committed;
        context_.actions.emplace_back(CommitStep{.group = group_, .step = current_.step});
    }
    decoded_ = 0;  // so that `deliver` takes the rest of the step one by one
    for (std::uint32_t position = 0; position < current_.payloads.size(); ++position) deliver(position, now);
    close_round(now);
}

void GroupRounds::abort_step(const Status& status, TimePoint now) {
    current_.is_aborted = true;
    current_.digest = 0;
    ++context_.steps_aborted;
    aborted_.emplace(current_.step, status);
    if (aborted_.size() > kAbortedStepsKept) aborted_.erase(aborted_.begin());
    fail_waiting(status);
    close_round(now);
}

void GroupRounds::close_round(TimePoint now) {
    last_ack_ = Ack{.stream = stream(), .is_aborted = current_.is_aborted, .digest = current_.digest};
    context_.send_to_members(FrameType::kAck, current_.step, build_message(context_.hash, *last_ack_));
    outbox_.on_own_acknowledgement(stream(), current_.step);
    auto next = new_round(current_.step + 1);
    retained_.push_back(std::move(current_));
    current_ = std::move(next);
    encoded_ = 0;
    decoded_ = 0;
    source_.reset();
    for (std::size_t member = 0; member < context_.members.size(); ++member) compare_digests(retained_.back(), member);
    release_retained(now);
}

Step GroupRounds::last_coded_step() const {
    return encoded_ == current_.payloads.size() ? current_.step : current_.step - 1;
}

}  // namespace gradsieve::exchange

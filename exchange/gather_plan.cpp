// The gather plan's path of one step: hand-in, coding, decoding, commit. One thread; owned by JobMachine.
#include "exchange/gather_plan.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

/// Failed steps that late ranks may still ask for; a rank further behind than this gets invalid-argument.
constexpr std::size_t kAbortedStepsKept = 1024;

}  // namespace

GatherPlan::GatherPlan(JobContext& context, Outbox& outbox, GroupNumber group)
    : context_(context),
      outbox_(outbox),
      group_(group),
      current_(new_round(context.first_steps[group])),
      is_encoding_(context.tensors_of[group].size(), false),
      is_decoding_(context.tensors_of[group].size(), false),
      committed_(context.first_steps[group] - 1) {}

Round GatherPlan::new_round(Step step) const {
    return Round(step, context_.tensors_of[group_].size(), context_.members.size(),
                 context_.members[context_.own].ranks.size());
}

OutKey GatherPlan::key(Step step, std::size_t origin) const {
    return {.step = step, .stream = stream(), .origin = context_.members[origin].peer};
}

void GatherPlan::open(TimePoint now) {
    if (!current_.opened_at) current_.opened_at = now;
}

Status GatherPlan::on_submitted(Rank rank, TensorNumber tensor, Step step, TimePoint now) {
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
    auto& round = current_.tensors[position];
    if (round.submitted[local])
        return {StatusCode::kBusy,
                subject + ": rank " + std::to_string(rank) + " has handed it in already: wait for its result first"};
    round.submitted[local] = true;
    open(now);
    advance(position, now);
    return {};
}

void GatherPlan::on_encoded(TensorNumber tensor, Step step, std::vector<std::pair<std::uint32_t, SharedView>> chunks,
                            TimePoint now) {
    const auto position = context_.position_of[tensor];
    is_encoding_[position] = false;
    auto& round = current_.tensors[position];
    if (step == current_.step && round.is_encode_requested && !round.is_encoded)
        send_own(tensor, records_of_chunks(tensor, std::move(chunks)));
    advance(position, now);
}

void GatherPlan::on_encode_failed(TensorNumber tensor, Step step, const Status& status, TimePoint now) {
    const auto position = context_.position_of[tensor];
    is_encoding_[position] = false;
    auto& round = current_.tensors[position];
    if (step != current_.step || !round.is_encode_requested || round.is_encoded) return advance(position, now);
    auto named = status.with_context(context_.tensor_text(tensor) + " on " + context_.node_text(context_.self));
    send_own(tensor, {mark_of_failure(tensor, named)});
    if (is_fatal(named) && !is_frozen_) return abort_step(named, now);
    advance(position, now);
}

void GatherPlan::send_own(TensorNumber tensor, const std::vector<Record>& records) {
    auto& round = current_.tensors[context_.position_of[tensor]];
    round.is_encoded = true;
    ++encoded_;
    const bool is_last = encoded_ == current_.tensors.size();
    for (const auto& record : records) (void)round.from[context_.own].take(record);
    for (std::size_t member = 0; member < context_.members.size(); ++member) {
        if (member == context_.own || !context_.is_active(member)) continue;
        for (const auto& record : records) send_record(member, key(current_.step, context_.own), record);
        const bool is_mark = records.front().header.kind == RecordKind::kMark && records.front().header.chunk != 0;
        if (is_last || is_mark) outbox_.complete(context_.members[member].peer, key(current_.step, context_.own));
    }
}

void GatherPlan::send_record(std::size_t member, const OutKey& out_key, const Record& record) {
    OutRecord out{
        .tensor = record.header.tensor, .chunk = record.header.chunk, .header = {}, .payload = record.payload};
    build_record_header(out.header, record.header);
    outbox_.add(context_.members[member].peer, out_key, std::move(out));
}

/// A failure that no policy turns into a result: the step has none on any node.
bool GatherPlan::is_fatal(const Status& failure) const {
    return failure.code() != StatusCode::kNonFinite || context_.spec.non_finite_policy == 0;
}

void GatherPlan::advance_all(TimePoint now) {
    const auto step = current_.step;
    for (const auto& tensor : current_.tensors)
        for (const auto& assembly : tensor.from)
            if (assembly.failure() && is_fatal(*assembly.failure()) && !is_frozen_)
                return abort_step(*assembly.failure(), now);
    for (std::uint32_t position = 0; position < current_.tensors.size() && current_.step == step; ++position)
        advance(position, now);
}

void GatherPlan::advance(std::uint32_t position, TimePoint now) {
    if (is_frozen_) return;
    request_encode(position);
    request_decode(position);
    deliver(position, now);
}

void GatherPlan::request_encode(std::uint32_t position) {
    auto& round = current_.tensors[position];
    if (round.is_encode_requested || is_encoding_[position] || !retained_.empty() || !round.is_submitted()) return;
    round.is_encode_requested = true;
    is_encoding_[position] = true;
    context_.actions.emplace_back(EncodeTensor{.tensor = context_.tensors_of[group_][position], .step = current_.step});
}

void GatherPlan::request_decode(std::uint32_t position) {
    auto& round = current_.tensors[position];
    if (round.is_decode_requested || is_decoding_[position] || !round.is_complete()) return;
    round.is_decode_requested = true;
    const bool has_failure =
        std::ranges::any_of(round.from, [](const Assembly& assembly) { return assembly.failure().has_value(); });
    constexpr std::uint8_t kSkipStep = 1;
    if (has_failure && context_.spec.non_finite_policy == kSkipStep) {  // no numbers to add: delivered as NaN
        round.is_decoded = true;
        ++decoded_;
        return;
    }
    is_decoding_[position] = true;
    DecodeTensor decode{.tensor = context_.tensors_of[group_][position], .step = current_.step, .payloads = {}};
    for (std::size_t member = 0; member < context_.members.size(); ++member)
        decode.payloads.push_back({.peer = context_.members[member].peer, .chunks = round.from[member].chunks()});
    context_.actions.emplace_back(std::move(decode));
}

void GatherPlan::on_decoded(TensorNumber tensor, Step step, std::uint64_t digest, const Status& status, TimePoint now) {
    const auto position = context_.position_of[tensor];
    is_decoding_[position] = false;
    auto& round = current_.tensors[position];
    if (step == current_.step && round.is_decode_requested && !round.is_decoded) {
        if (!status.is_ok())
            return context_.fail(status.code(), context_.tensor_text(tensor) + ", " + context_.step_text(group_, step) +
                                                    ": decoding failed on " + context_.node_text(context_.self) + ": " +
                                                    status.text());
        round.is_decoded = true;
        round.digest = digest;
        ++decoded_;
    }
    advance(position, now);
}

void GatherPlan::deliver(std::uint32_t position, TimePoint now) {
    if (decoded_ == current_.tensors.size()) return finish_step(now);
    auto& round = current_.tensors[position];
    if (!round.is_decoded || round.is_delivered) return;
    round.is_delivered = true;
    const bool is_nan =
        std::ranges::any_of(round.from, [](const Assembly& assembly) { return assembly.failure().has_value(); });
    constexpr std::uint8_t kSkipStep = 1;
    context_.actions.emplace_back(
        DeliverResult{.tensor = context_.tensors_of[group_][position],
                      .step = current_.step,
                      .status = {},
                      .fill_not_a_number = is_nan && context_.spec.non_finite_policy == kSkipStep});
}

void GatherPlan::finish_step(TimePoint now) {
    constexpr std::uint8_t kSkipStep = 1;
    std::optional<Status> skipped;
    for (const auto& tensor : current_.tensors) {
        current_.digest += tensor.digest;
        for (const auto& assembly : tensor.from)
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
    for (std::uint32_t position = 0; position < current_.tensors.size(); ++position) deliver(position, now);
    close_round(now);
}

void GatherPlan::abort_step(const Status& status, TimePoint now) {
    current_.is_aborted = true;
    current_.digest = 0;
    ++context_.steps_aborted;
    aborted_.emplace(current_.step, status);
    if (aborted_.size() > kAbortedStepsKept) aborted_.erase(aborted_.begin());
    fail_waiting(status);
    close_round(now);
}

void GatherPlan::close_round(TimePoint now) {
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

Step GatherPlan::last_coded_step() const {
    return encoded_ == current_.tensors.size() ? current_.step : current_.step - 1;
}

}  // namespace gradsieve::exchange

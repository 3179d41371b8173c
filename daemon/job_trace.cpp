#include "daemon/job_trace.hpp"

#include <algorithm>
#include <limits>

namespace gradsieve::daemon {

namespace {

/// The network thread tells at once of frames that have left; without its word, a trace ends so much later.
constexpr Duration kSentWithin = std::chrono::milliseconds(250);
/// Of one tensor and step besides hand-ins and peers: encode asked, encoded, decode asked, decoded, handed back.
constexpr std::uint64_t kEventsOfTensor = 5;
/// Of a second phase: the first four of these.
constexpr std::uint64_t kEventsOfPhase = 4;

std::int64_t nanoseconds(TimePoint time) { return time.time_since_epoch().count(); }

}  // namespace

Result<std::size_t> TraceExtent::capacity(std::uint32_t steps) const {
    std::uint64_t of_step = groups;  // their ends
    // A peer's first and last record; ours in frames that hold one chunk or more, and each frame's leave.
    const auto of_peers = [this](ElementCount count) { return peers * (2 + 2 * (count / kChunkElements + 1)); };
    for (const auto count : elements) of_step += kEventsOfTensor + local_ranks + of_peers(count);
    for (const auto count : second_phases) of_step += kEventsOfPhase + of_peers(count);
    constexpr std::uint64_t kSpare = 64;  // and a quarter more
    const auto wanted = steps * of_step + steps * of_step / 4 + kSpare;
    if (wanted <= shm::kTraceEventLimit) return static_cast<std::size_t>(wanted);
    constexpr auto kMost = shm::kTraceEventLimit - kSpare;  // x + x / 4 fits up to x = kMost - (kMost + 1) / 5
    const auto fitting = (kMost - (kMost + 1) / 5) / of_step;
    return Status(StatusCode::kResourceExhausted, std::to_string(steps) + " steps of " +
                                                      std::to_string(elements.size()) + " tensors: a trace holds " +
                                                      std::to_string(shm::kTraceEventLimit) + " events, which are " +
                                                      std::to_string(fitting) + " steps of this job: ask for fewer");
}

JobTrace::JobTrace(const Asked& asked, const TraceExtent& extent, std::vector<Step> first_steps, std::size_t capacity,
                   const Clock& clock)
    : asked_(asked),
      clock_(clock),
      group_of_(extent.group_of),
      begin_(clock.now()),
      begin_unix_ns_(
          std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch()).count()) {
    events_.reserve(capacity);
    for (const auto first : first_steps) groups_.push_back({.first = first});
}

bool JobTrace::takes(exchange::GroupNumber group, Step step) {
    auto& steps = groups_[group];
    if (step == steps.current) return true;
    if (step < steps.first || step < steps.current || begun_ == asked_.steps) return false;
    steps.current = step;
    ++begun_;
    return true;
}

void JobTrace::push(const shm::TraceEvent& event) {
    if (events_.size() == events_.capacity())
        ++events_lost_;
    else
        events_.push_back(event);
}

void JobTrace::record(shm::TraceEventKind kind, exchange::TensorNumber tensor, Step step, std::uint32_t who,
                      TimePoint time, TimePoint until, std::uint64_t number) {
    if (!takes(group_of_[tensor], step)) return;
    push({.kind = kind,
          .tensor = tensor,
          .who = who,
          .step = step,
          .time_ns = nanoseconds(time),
          .until_ns = nanoseconds(until),
          .number = number});
}

void JobTrace::on_hand_in(exchange::TensorNumber tensor, Step step, Rank rank) {
    record(shm::TraceEventKind::kHandIn, tensor, step, rank, clock_.now());
}
void JobTrace::on_encode_asked(exchange::TensorNumber tensor, Step step) {
    record(shm::TraceEventKind::kEncodeAsked, tensor, step, 0, clock_.now());
}
void JobTrace::on_encoded(exchange::TensorNumber tensor, Step step, TimePoint began, TimePoint ended, ByteCount bytes) {
    record(shm::TraceEventKind::kEncoded, tensor, step, 0, began, ended, bytes);
}
void JobTrace::on_decode_asked(exchange::TensorNumber tensor, Step step) {
    record(shm::TraceEventKind::kDecodeAsked, tensor, step, 0, clock_.now());
}
void JobTrace::on_decoded(exchange::TensorNumber tensor, Step step, TimePoint began, TimePoint ended) {
    record(shm::TraceEventKind::kDecoded, tensor, step, 0, began, ended);
}
void JobTrace::on_handed_back(exchange::TensorNumber tensor, Step step) {
    record(shm::TraceEventKind::kHandedBack, tensor, step, 0, clock_.now());
}

void JobTrace::on_step_ended(exchange::GroupNumber group, Step step, bool is_committed) {
    if (!takes(group, step)) return;
    ++ended_;
    ended_at_ = clock_.now();
    push({.kind = is_committed ? shm::TraceEventKind::kStepCommitted : shm::TraceEventKind::kStepFailed,
          .tensor = group,
          .step = step,
          .time_ns = nanoseconds(ended_at_)});
}

void JobTrace::on_record_in(std::uint32_t tensor, Step step, PeerIndex origin, bool is_first, bool is_last) {
    if (!is_first && !is_last) return;
    const auto taken = clock_.now();
    const auto arrived = arrived_ == TimePoint{} ? taken : std::min(arrived_, taken);
    if (is_first) record(shm::TraceEventKind::kFirstRecord, tensor, step, origin, arrived, taken);
    if (is_last) record(shm::TraceEventKind::kLastRecord, tensor, step, origin, arrived, taken);
}

void JobTrace::on_record_out(std::uint32_t tensor, Step step, PeerIndex to, std::uint64_t frame) {
    if (!takes(group_of_[tensor], step)) return;
    last_frame_ = frame;
    record(shm::TraceEventKind::kRecordsOut, tensor, step, to, clock_.now(), {}, frame);
}

void JobTrace::on_frame_sent(std::uint64_t frame, TimePoint at) {
    if (frame > last_frame_) return;  // of a step that is not recorded
    last_sent_ = frame;
    push({.kind = shm::TraceEventKind::kFrameSent, .time_ns = nanoseconds(at), .number = frame});
}

bool JobTrace::is_complete(TimePoint now) const {
    return ended_ == asked_.steps && (last_sent_ >= last_frame_ || now >= ended_at_ + kSentWithin);
}

void JobTrace::take_into(shm::TraceReply& ret_reply) {
    ret_reply.begin_ns = nanoseconds(begin_);
    ret_reply.end_ns = nanoseconds(clock_.now());
    ret_reply.begin_unix_ns = begin_unix_ns_;
    ret_reply.steps_ended = ended_;
    ret_reply.events_lost = events_lost_;
    ret_reply.events = std::move(events_);
}

}  // namespace gradsieve::daemon

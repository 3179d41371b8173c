// What one job's next steps did and when, for whoever asked for a trace: events of a fixed size, written into memory
// that was taken beforehand. Never allocates while steps run; what does not fit is counted. Conductor thread only;
// owned by the job.
#pragma once

#include "base/clock.hpp"
#include "base/status.hpp"
#include "exchange/job_machine.hpp"
#include "exchange/round_watcher.hpp"
#include "shm/trace_message.hpp"

#include <optional>
#include <span>
#include <vector>

namespace gradsieve::daemon {

/// What decides how many events a step has.
struct TraceExtent {
    std::vector<exchange::GroupNumber> group_of;   ///< by tensor
    std::vector<ElementCount> elements;            ///< by tensor
    std::vector<ElementCount> second_phases = {};  ///< of what their payloads stand for
    std::size_t groups = 0;
    std::size_t local_ranks = 0;
    std::size_t peers = 0;
    /// Room for that many steps of the whole job, and for some frames that go twice. Errors: kResourceExhausted (more
    /// than a trace may have; how many steps would fit).
    [[nodiscard]] Result<std::size_t> capacity(std::uint32_t steps) const;
};

class JobTrace final : public exchange::RoundWatcher {
public:
    struct Asked {
        std::uint64_t session_id = 0;
        std::uint64_t number = 0;  ///< the request's
        std::uint32_t steps = 1;
        TimePoint deadline{};
        Duration timeout{};
    };
    /// `first_steps`: by group, the first one that has not begun. `capacity`: events.
    JobTrace(const Asked& asked, const TraceExtent& extent, std::vector<Step> first_steps, std::size_t capacity,
             const Clock& clock);

    void on_hand_in(exchange::TensorNumber tensor, Step step, Rank rank);
    void on_encode_asked(exchange::TensorNumber tensor, Step step);
    void on_encoded(exchange::TensorNumber tensor, Step step, TimePoint began, TimePoint ended, ByteCount bytes);
    void on_decode_asked(exchange::TensorNumber tensor, Step step);
    void on_decoded(exchange::TensorNumber tensor, Step step, TimePoint began, TimePoint ended);
    void on_handed_back(exchange::TensorNumber tensor, Step step);
    void on_step_ended(exchange::GroupNumber group, Step step, bool is_committed);
    /// When the frame that is being looked at was taken from the transport.
    void set_arrival(TimePoint arrived) noexcept { arrived_ = arrived; }
    void on_frame_sent(std::uint64_t frame, TimePoint at);
    void on_record_in(std::uint32_t tensor, Step step, PeerIndex origin, bool is_first, bool is_last) override;
    void on_record_out(std::uint32_t tensor, Step step, PeerIndex to, std::uint64_t frame) override;

    /// All steps that were asked for have ended, and their frames have left.
    [[nodiscard]] bool is_complete(TimePoint now) const;
    [[nodiscard]] const Asked& asked() const noexcept { return asked_; }
    [[nodiscard]] std::uint32_t steps_ended() const noexcept { return ended_; }
    /// Events, times and counts move into a reply; the last call.
    void take_into(shm::TraceReply& ret_reply);

private:
    struct GroupSteps {
        Step first = 0;
        Step current = 0;  ///< the last one that is recorded; 0 = none yet
    };
    [[nodiscard]] bool takes(exchange::GroupNumber group, Step step);
    void record(shm::TraceEventKind kind, exchange::TensorNumber tensor, Step step, std::uint32_t who, TimePoint time,
                TimePoint until = {}, std::uint64_t number = 0);
    void push(const shm::TraceEvent& event);

    // constant after construction
    const Asked asked_;
    const Clock& clock_;
    const std::vector<exchange::GroupNumber> group_of_;
    const TimePoint begin_;
    const std::int64_t begin_unix_ns_;
    // change with events
    std::vector<shm::TraceEvent> events_;
    std::vector<GroupSteps> groups_;
    std::uint32_t begun_ = 0, ended_ = 0;
    std::uint64_t events_lost_ = 0;
    std::uint64_t last_frame_ = 0, last_sent_ = 0;  ///< numbers
    TimePoint arrived_{};
    TimePoint ended_at_{};
};

}  // namespace gradsieve::daemon

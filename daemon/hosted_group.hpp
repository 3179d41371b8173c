// What a job knows of one of its groups: how far its steps are, and how long they take. Plain values; conductor thread.
#pragma once

#include "base/clock.hpp"
#include "base/id.hpp"
#include "exchange/job_machine.hpp"

#include <optional>
#include <string>
#include <vector>

namespace gradsieve::daemon {

struct StepTimes {
    double total_ms = 0, encode_ms = 0, decode_ms = 0;
};
/// What a group's state begins with in this life.
enum class StateOrigin : std::uint8_t { kAnew, kMemory, kSnapshot };
struct GroupTotals {
    std::string name{};
    std::vector<exchange::TensorNumber> tensors{};
    ElementCount elements = 0;
    Step committed = 0;
    Step ended = 0;     ///< last step that was committed or failed
    Step snapshot = 0;  ///< newest one that was written in this life
    Step pinned = 0;    ///< newest one that was asked for and is complete on every node
    Step resumed = 0;   ///< the step whose kept state it went on from; 0 = it began anew
    StateOrigin origin = StateOrigin::kAnew;
    std::uint64_t steps_committed = 0, steps_aborted = 0;
    std::optional<TimePoint> opened{};  ///< the open step's first local hand-in
    StepTimes open_times{};
};

}  // namespace gradsieve::daemon

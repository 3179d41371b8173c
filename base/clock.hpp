// Time as a value: state machines take `now` as an argument, loops read it from a Clock, tests turn a ManualClock by
// hand. Steady time in nanoseconds; any thread.
#pragma once

#include <chrono>

namespace gradsieve {

using Duration = std::chrono::nanoseconds;
/// Steady time (CLOCK_MONOTONIC, so processes of one host agree).
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
public:
    virtual ~Clock() = default;
    [[nodiscard]] virtual TimePoint now() const = 0;
};

class SteadyClock final : public Clock {
public:
    [[nodiscard]] TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

class ManualClock final : public Clock {
public:
    [[nodiscard]] TimePoint now() const override { return now_; }
    void advance(Duration by) { now_ += by; }

private:
    TimePoint now_{std::chrono::hours(1)};
};

}  // namespace gradsieve

// Links of simulated nodes: each hangs on a switch that is never busy itself, and sends and receives at one rate, both
// at once. A frame leaves whole before the next one, control frames before bulk ones, as on a connection of their own,
// and takes its turn again where it arrives. One thread.
#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

namespace gradsieve::scaling {

/// What is to happen, in order of time; at one time in the order in which it was asked for.
class Agenda {
public:
    void at(TimePoint when, std::function<void()> event);
    void after(Duration wait, std::function<void()> event) { at(now_ + wait, std::move(event)); }
    /// Does the next one; false: nothing is left.
    bool run_next();
    [[nodiscard]] TimePoint now() const noexcept { return now_; }

private:
    struct Event {
        TimePoint at;
        std::uint64_t number;
        std::function<void()> run;
        bool operator>(const Event& other) const { return std::tie(at, number) > std::tie(other.at, other.number); }
    };
    TimePoint now_{std::chrono::hours(1)};
    std::uint64_t next_number_ = 0;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

struct LinkModel {
    double bits_per_second = 1e9;  ///< each way, of every node; > 0
    Duration latency{};            ///< one way
};

/// Bytes that a frame of `body_bytes` is on an interface: its header, ZeroMQ's framing, and the headers of TCP, IP and
/// Ethernet for each full segment.
[[nodiscard]] double bytes_on_the_wire(double body_bytes);

class NetworkModel {
public:
    NetworkModel(Agenda& agenda, std::size_t nodes, const LinkModel& link);

    /// `deliver` is called when the last byte has arrived.
    void send(std::size_t from, std::size_t to, bool is_bulk, double wire_bytes, std::function<void()> deliver);

    struct Sent {
        double bytes = 0;
        std::uint64_t frames = 0;
    };
    [[nodiscard]] const Sent& sent(std::size_t node) const { return ends_[node].sent; }

private:
    struct Frame {
        std::size_t to = 0;
        double wire_bytes = 0;
        std::function<void()> deliver;
    };
    struct End {
        std::deque<Frame> control;
        std::map<std::size_t, std::deque<Frame>> bulk;  ///< by receiver; none is empty
        std::size_t last_receiver = 0;                  ///< of a bulk frame
        bool is_sending = false;
        TimePoint receives_until{};
        Sent sent;
    };
    void send_next(std::size_t from);
    [[nodiscard]] static std::optional<Frame> next_frame(End& end);
    [[nodiscard]] Duration time_of(double wire_bytes) const;

    Agenda& agenda_;
    LinkModel link_;
    std::vector<End> ends_;
};

/// Cores that code: what is asked for first is done first.
class WorkerModel {
public:
    explicit WorkerModel(std::size_t cores) : free_at_(cores) {}
    /// When work that is asked for now and takes `seconds` of one core will be done.
    [[nodiscard]] TimePoint done_at(TimePoint now, double seconds);

private:
    std::vector<TimePoint> free_at_;
};

}  // namespace gradsieve::scaling

// The one thread that owns the transport. The conductor hands it frames and takes frames and peer events from it over
// two queues; neither side ever waits for the other. Owned by the daemon; `send`, `take_inbox` and `counters` are
// called by the conductor only.
#pragma once

#include "base/clock.hpp"
#include "daemon/log.hpp"
#include "daemon/spsc_queue.hpp"
#include "daemon/wake.hpp"
#include "transport/transport.hpp"

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace gradsieve::daemon {

/// A frame whose transport is to be told of: of which job, and the job's number of it.
struct FrameMark {
    std::uint64_t job_hash = 0;
    std::uint64_t number = 0;  ///< 0: nobody asks
};
struct SentFrame {
    FrameMark mark;
    TimePoint at{};  ///< when the transport had taken it
};

class NetworkThread {
public:
    NetworkThread(std::unique_ptr<transport::Transport> transport, WakeFlag& conductor_wake, Log& log);
    /// Sends what is queued for up to half a second, then closes every socket.
    ~NetworkThread();
    NetworkThread(const NetworkThread&) = delete;
    NetworkThread& operator=(const NetworkThread&) = delete;

    /// Marked ones are told of by `take_sent`.
    void send(PeerIndex to, transport::Lane lane, transport::OutFrame frame, FrameMark mark = {});
    /// Of marked frames, in the order in which they left. If nobody looks, the last ones are not told.
    [[nodiscard]] std::optional<SentFrame> take_sent() { return sent_.try_pop(); }
    /// What has arrived since the last call, in order.
    void take_inbox(transport::Inbox& ret_inbox);
    [[nodiscard]] bool has_inbox() const noexcept { return !to_conductor_.is_empty(); }
    /// Retries what did not fit into the queue, and shows peers that the conductor lives.
    void on_tick(std::uint64_t tick);
    /// At most `kCountersEvery` old.
    [[nodiscard]] std::vector<transport::PeerCounters> counters() const;
    [[nodiscard]] transport::PortCounters port_counters() const;
    /// Whether the counters hold whatever was handed to `send` before `time`.
    [[nodiscard]] bool has_counted(TimePoint time) const;
    [[nodiscard]] const std::string& bound_address() const noexcept { return bound_address_; }
    [[nodiscard]] std::size_t queue_depth() const noexcept { return to_network_.depth() + backlog_.size(); }

    static constexpr Duration kCountersEvery = std::chrono::milliseconds(100);

private:
    struct Outgoing {
        PeerIndex to = 0;
        transport::Lane lane = transport::Lane::kControl;
        transport::OutFrame frame;
        FrameMark mark;
    };
    void run();
    void send_queued();
    void publish_counters(TimePoint now);
    void log_notices(std::vector<transport::Notice>& notices);

    // constant after construction
    std::unique_ptr<transport::Transport> transport_;  // used by the network thread; `wake` by any
    WakeFlag& conductor_wake_;
    Log& log_;
    std::string bound_address_;
    // shared, each with its own rule
    SpscQueue<std::unique_ptr<Outgoing>> to_network_{4096};
    SpscQueue<std::unique_ptr<transport::Inbox>> to_conductor_{4096};
    SpscQueue<SentFrame> sent_{4096};
    std::atomic<std::uint64_t> tick_{0};
    std::atomic<bool> is_stopping_{false};
    mutable std::mutex counters_mutex_;              // status only, never on the gradient's path
    std::vector<transport::PeerCounters> counters_;  // guarded by counters_mutex_
    transport::PortCounters port_counters_;          // guarded by counters_mutex_
    TimePoint counters_taken_{};                     // guarded by counters_mutex_
    // owned by the conductor thread
    std::deque<std::unique_ptr<Outgoing>> backlog_;
    // owned by the network thread
    TimePoint counters_due_{};

    std::thread thread_;
};

}  // namespace gradsieve::daemon

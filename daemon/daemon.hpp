// The daemon as one object: configuration in, threads running, stopped by `request_stop`. The main thread owns it and
// calls everything here; signal handling and the command line are main.cpp's.
#pragma once

#include "daemon/conductor.hpp"
#include "daemon/config.hpp"
#include "transport/curve_key.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace gradsieve::daemon {

class Daemon {
public:
    /// Binds sockets, makes the status page, starts the threads. `handed`: what came from the service manager. Errors:
    /// kAlreadyExists (socket or port held, by whom), kInvalidArgument, kPermissionDenied, kResourceExhausted.
    [[nodiscard]] static Result<std::unique_ptr<Daemon>> start(const Config& config, HandedDescriptors handed,
                                                               Log& log);
    ~Daemon();  ///< stops if still running
    Daemon(const Daemon&) = delete;
    Daemon& operator=(const Daemon&) = delete;

    /// Ends open jobs with a reason, sends what is to be said, joins the threads. Takes at most about 3 s.
    void stop();
    /// SIGHUP: applies what may change while running, and says which changed keys need a restart.
    void reload(const Config& fresh);
    /// A GPU was lost, which only a new process can use again: stop, and let the service manager start one.
    [[nodiscard]] bool needs_restart() const noexcept { return needs_restart_.load(std::memory_order_acquire); }
    /// Moves while the conductor is alive.
    [[nodiscard]] std::uint64_t tick() const noexcept { return conductor_->tick(); }
    /// As it started: node, socket, address for peers.
    [[nodiscard]] const std::string& summary() const noexcept { return summary_; }

private:
    Daemon(const Config& config, Log& log) : config_(config), log_(log) {}
    using OptionalKey = std::optional<transport::SecretKey>;
    /// None for plain text, and for a single node.
    [[nodiscard]] static Result<OptionalKey> load_secret_key(const Config& config);
    [[nodiscard]] Result<std::unique_ptr<NetworkThread>> make_network(const Config& config,
                                                                      const OptionalKey& secret_key);
    /// Replaces the node list and the network that goes with it.
    void change_nodes(const Config& fresh);
    void run_conductor();
    void take_reload();

    // main thread
    Config config_;
    std::string summary_;
    // constant after start
    Log& log_;
    SteadyClock clock_;
    std::optional<shm::LocalListener> listener_;
    std::optional<shm::Doorbell> doorbell_;
    std::optional<WakeFlag> wake_;
    std::optional<shm::StatusPageWriter> status_page_;
    std::unique_ptr<CodecPool> pool_;
    std::unique_ptr<GpuPool> gpus_;
    std::unique_ptr<Snapshotter> snapshots_;
    std::unique_ptr<Conductor> conductor_;
    std::atomic<bool> is_stopping_{false};
    std::atomic<bool> needs_restart_{false};
    // from the main to the conductor thread
    std::atomic<bool> has_fresh_config_{false};
    std::mutex fresh_mutex_;
    std::optional<Config> fresh_config_;  // guarded by fresh_mutex_
    // conductor thread
    std::optional<Config> pending_nodes_;  ///< its node list waits until no job is open
    std::thread thread_;
};

}  // namespace gradsieve::daemon

// Status is memory, not a request: the daemon publishes one JSON document in a file on tmpfs beside its socket, and a
// reader looks without asking anybody. Two copies, each with a sequence word and a checksum, so that a reader finds a
// whole document even if the writer was stopped half-way. Written and read with pwrite and pread: whoever truncates the
// file then costs an error, never a SIGBUS. Layout: docs/shared-memory.md. One writer thread; any readers.
#pragma once

#include "base/clock.hpp"
#include "base/status.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace gradsieve::shm {

class StatusPageWriter {
public:
    /// Creates the file complete (all its blocks; the document "{}") under another name and renames it into place (mode
    /// 0640, `group` if not empty). Errors: kPermissionDenied, kNotFound (group), kResourceExhausted (the file system
    /// is full), kFailedPrecondition (the folder).
    [[nodiscard]] static Result<StatusPageWriter> make(const std::string& path, const std::string& group);
    StatusPageWriter(StatusPageWriter&&) noexcept;
    StatusPageWriter& operator=(StatusPageWriter&&) noexcept;
    ~StatusPageWriter();  ///< leaves the file: the last state stays readable

    /// Replaces the document and the heartbeat. Longer than capacity_bytes(): kResourceExhausted, old one kept.
    [[nodiscard]] Status publish(std::string_view document, TimePoint now);
    void beat(TimePoint now) noexcept;  ///< heartbeat only
    /// The daemon says goodbye (clean stop): readers then say "stopped".
    void set_stopped() noexcept;
    [[nodiscard]] std::size_t capacity_bytes() const noexcept;

private:
    struct Impl;
    explicit StatusPageWriter(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

enum class DaemonHealth : std::uint8_t {
    kLive,     ///< process exists and its heartbeat is fresh
    kHung,     ///< process exists, no heartbeat for 3 s (stopped, or its conductor hangs)
    kDead,     ///< the process is gone without saying goodbye
    kStopped,  ///< clean stop
};
struct StatusSnapshot {
    DaemonHealth health = DaemonHealth::kDead;
    int pid = 0;
    double heartbeat_age_seconds = 0;
    std::string document;
};
/// A heartbeat older than this is a hung daemon.
inline constexpr Duration kHungAfter = std::chrono::seconds(3);
/// Never waits for the daemon. In another PID namespace than the daemon's only the heartbeat counts: kDead shows as
/// kHung. Errors: kNotFound (no file: no daemon has run here), kVersionMismatch, kCorrupt, kPermissionDenied.
[[nodiscard]] Result<StatusSnapshot> read_status_page(const std::string& path, Duration hung_after = kHungAfter);

}  // namespace gradsieve::shm

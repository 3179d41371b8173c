// What the doctor finds: one finding per question, each with what to do. The checks look at this host and never change
// it; none waits longer than the deadline it names. One thread.
#pragma once

#include "cli/console.hpp"
#include "cli/status_page_health.hpp"
#include "daemon/config.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace gradsieve::cli {

enum class Grade : std::uint8_t { kOk, kWarn, kFail };
struct Finding {
    Grade grade = Grade::kOk;
    std::string subject;  ///< "socket"
    std::string text;     ///< what was seen
    std::string advice;   ///< what to do; "" if nothing
};
/// One line each, advice on a second, and a line of totals.
[[nodiscard]] std::string render_findings(const std::vector<Finding>& findings, const Look& look);

// -- this host --
[[nodiscard]] Finding check_sealed_memory();
[[nodiscard]] Finding check_cpu();
/// `limit_text`: the lines of /proc/PID/limits.
[[nodiscard]] Finding check_locked_memory(const std::string& limits_text);
/// `meminfo_text`: the lines of /proc/meminfo. `limit_bytes`: the daemon's; 0 = half of the RAM.
[[nodiscard]] Finding check_memory(const std::string& meminfo_text, ByteCount limit_bytes);

// -- the daemon --
[[nodiscard]] Finding check_health(const PageReading& reading);
[[nodiscard]] Finding check_socket(const std::string& path);
[[nodiscard]] Finding check_versions(const PageReading& reading);
/// What the daemon itself reports: plain text, refused keys and frames, failing handshakes, errors, differing digests.
[[nodiscard]] std::vector<Finding> check_document(const PageReading& reading);

/// Whether a live daemon runs with this node's key of the configuration; without one, whether the key file fits.
/// `config`: an encrypted one.
[[nodiscard]] Finding check_key(const daemon::Config& config, const PageReading& reading);

// -- the network --
/// Whether this node's port is free, or held by the daemon with `daemon_pid` (0 = none runs).
[[nodiscard]] Finding check_port(const daemon::NodeConfig& self, std::int64_t daemon_pid);
/// Whether each node but `self` resolves and takes a connection; all at once, `patience` in all.
[[nodiscard]] std::vector<Finding> check_peers(const std::vector<daemon::NodeConfig>& nodes, PeerIndex self,
                                               std::chrono::milliseconds patience);

}  // namespace gradsieve::cli

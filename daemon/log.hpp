// What the daemon says: one line per state change, to journald with priorities and fields when the service manager
// started us, else to standard error. The same line over and over is held back and summed up. Only daemon/ uses it; it
// hides spdlog. Any thread; the hall owns the one Log and hands out references.
#pragma once

#include "base/clock.hpp"
#include "base/id.hpp"
#include "base/status.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::daemon {

/// Ascending by how much is said.
enum class LogLevel : std::uint8_t { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

/// "error", "warning", "info" or "debug". Errors: kInvalidArgument (value seen and what is allowed).
[[nodiscard]] Result<LogLevel> parse_log_level(std::string_view text);
[[nodiscard]] std::string_view log_level_name(LogLevel level) noexcept;

/// What a line is about; empty ones are left out. They become the journal's fields JOB=, PEER= and STEP=.
struct LogFields {
    std::string_view job{};
    std::string_view peer{};
    std::optional<Step> step{};
};

/// Where finished lines go. Called by one thread at a time.
class LogSink {
public:
    virtual ~LogSink() = default;
    /// `text` is one line of printable characters and UTF-8.
    virtual void write(LogLevel level, const std::string& text, const LogFields& fields) = 0;
};
/// Standard error: time, level (in colour on a terminal), text, fields. Never waits: lines for which there is no room,
/// because nobody reads, are counted, and said in one line once there is. Longer ones than a pipe takes at once are
/// cut.
[[nodiscard]] std::unique_ptr<LogSink> make_stderr_sink();
/// What the journal is told, one "FIELD=value" each: MESSAGE, PRIORITY (as syslog's), SYSLOG_IDENTIFIER, and those of
/// JOB, PEER and STEP that are set.
[[nodiscard]] std::vector<std::string> journal_entries(LogLevel level, const std::string& text,
                                                       const LogFields& fields);
/// The journal's native protocol: MESSAGE, PRIORITY, SYSLOG_IDENTIFIER=gradsieved, JOB, PEER, STEP.
[[nodiscard]] std::unique_ptr<LogSink> make_journal_sink();
/// Whether `journal_stream` ($JOURNAL_STREAM, "device:inode") names the file behind `fd`: then a journal reads it.
[[nodiscard]] bool is_journal_stream(std::string_view journal_stream, int fd);
/// The journal if it reads our standard error, else standard error.
[[nodiscard]] std::unique_ptr<LogSink> make_log_sink();

/// At most `burst` equal lines (text and fields) pass per `window`; the others are counted, and said in one line at its
/// end.
struct LogRateLimit {
    unsigned burst = 5;
    Duration window = std::chrono::seconds(10);
};

class Log {
public:
    Log(LogLevel level, std::unique_ptr<LogSink> sink, const Clock& clock, LogRateLimit limit = {});
    ~Log();  ///< says what was held back
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    void error(std::string_view text, const LogFields& fields = {}) { write(LogLevel::kError, text, fields); }
    void warning(std::string_view text, const LogFields& fields = {}) { write(LogLevel::kWarning, text, fields); }
    void info(std::string_view text, const LogFields& fields = {}) { write(LogLevel::kInfo, text, fields); }
    void debug(std::string_view text, const LogFields& fields = {}) { write(LogLevel::kDebug, text, fields); }

    void set_level(LogLevel level) noexcept {
        level_.store(level, std::memory_order_relaxed);
    }  // alone: orders nothing
    [[nodiscard]] bool is_enabled(LogLevel level) const noexcept {
        return level <= level_.load(std::memory_order_relaxed);
    }
    /// Says what was held back in windows that are over; every written line does it too.
    void on_time();

private:
    struct Repeats {
        TimePoint window_start{};
        unsigned passed = 0;
        std::uint64_t held_back = 0;
        LogLevel level = LogLevel::kInfo;
        std::string text, job, peer;
        std::optional<Step> step;
    };
    void write(LogLevel level, std::string_view text, const LogFields& fields);
    void say_held_back(const Repeats& repeats);
    void end_windows(TimePoint now);
    [[nodiscard]] Repeats& repeats_of(LogLevel level, const std::string& text, const LogFields& fields, TimePoint now);

    // constant after construction
    const Clock& clock_;
    const LogRateLimit limit_;
    // any thread
    std::atomic<LogLevel> level_;
    // guarded by mutex_
    std::mutex mutex_;
    std::unique_ptr<LogSink> sink_;
    std::map<std::string, Repeats> repeats_;
};

}  // namespace gradsieve::daemon

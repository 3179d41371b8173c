// The two places that log lines go to. The journal is spoken to directly, since spdlog's own sink for it cannot carry
// fields; spdlog writes standard error. Its exceptions end in its error handler. Called by one thread at a time.
#include "daemon/log.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <unistd.h>

#define SD_JOURNAL_SUPPRESS_LOCATION  // the place in the source says nothing to a reader of the journal
#include <systemd/sd-journal.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <utility>
#include <vector>

namespace gradsieve::daemon {

namespace {

/// With time and level less than PIPE_BUF: what a pipe that is not full takes at once.
constexpr std::size_t kLineLimitBytes = PIPE_BUF - 96;

/// Whether a line would not have to wait for whoever reads standard error, or would fail at once.
bool is_stderr_ready() {
    pollfd stream{STDERR_FILENO, POLLOUT, 0};
    return ::poll(&stream, 1, 0) != 0;
}

/// A reader that has stopped must not stop the daemon: what it does not take is counted, and said once it reads again.
class StderrSink final : public LogSink {
public:
    StderrSink() : logger_("gradsieved", std::make_shared<spdlog::sinks::stderr_color_sink_st>()) {
        logger_.set_level(spdlog::level::debug);
        logger_.set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
        logger_.flush_on(spdlog::level::debug);
        logger_.set_error_handler([](const std::string&) {});  // nowhere left to say it
    }
    void write(LogLevel level, const std::string& text, const LogFields& fields) override {
        auto line = text;
        if (!fields.job.empty()) line += fmt::format(" JOB={}", fields.job);
        if (!fields.peer.empty()) line += fmt::format(" PEER={}", fields.peer);
        if (fields.step) line += fmt::format(" STEP={}", *fields.step);
        line.resize(std::min(line.size(), kLineLimitBytes));
        constexpr std::array kLevels = {spdlog::level::err, spdlog::level::warn, spdlog::level::info,
                                        spdlog::level::debug};
        if (lost_ > 0 && is_stderr_ready())
            logger_.warn("{} lines are missing here: nobody read standard error", std::exchange(lost_, 0));
        if (lost_ == 0 && is_stderr_ready())
            logger_.log(kLevels[static_cast<std::size_t>(level)], spdlog::string_view_t(line));
        else
            ++lost_;
    }

private:
    spdlog::logger logger_;
    std::uint64_t lost_ = 0;  ///< lines that standard error did not take
};

class JournalSink final : public LogSink {
public:
    void write(LogLevel level, const std::string& text, const LogFields& fields) override {
        auto entries = journal_entries(level, text, fields);
        std::vector<iovec> parts;
        for (auto& entry : entries) parts.push_back({entry.data(), entry.size()});
        // Nothing is waited for and nobody is left to tell of a failure: the journal may be gone at shutdown.
        static_cast<void>(::sd_journal_sendv(parts.data(), static_cast<int>(parts.size())));
    }
};

}  // namespace

std::vector<std::string> journal_entries(LogLevel level, const std::string& text, const LogFields& fields) {
    constexpr std::array kPriorities = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
    std::vector<std::string> entries = {"MESSAGE=" + text,
                                        fmt::format("PRIORITY={}", kPriorities[static_cast<std::size_t>(level)]),
                                        "SYSLOG_IDENTIFIER=gradsieved"};
    if (!fields.job.empty()) entries.push_back(fmt::format("JOB={}", fields.job));
    if (!fields.peer.empty()) entries.push_back(fmt::format("PEER={}", fields.peer));
    if (fields.step) entries.push_back(fmt::format("STEP={}", *fields.step));
    return entries;
}

std::unique_ptr<LogSink> make_stderr_sink() { return std::make_unique<StderrSink>(); }

std::unique_ptr<LogSink> make_journal_sink() { return std::make_unique<JournalSink>(); }

bool is_journal_stream(std::string_view journal_stream, int fd) {
    const auto colon = journal_stream.find(':');
    if (colon == std::string_view::npos) return false;
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    const auto parse = [](std::string_view text, std::uint64_t& ret_number) {
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ret_number);
        return error == std::errc() && end == text.data() + text.size();
    };
    if (!parse(journal_stream.substr(0, colon), device) || !parse(journal_stream.substr(colon + 1), inode))
        return false;
    struct stat facts {};
    return ::fstat(fd, &facts) == 0 && facts.st_dev == device && facts.st_ino == inode;
}

std::unique_ptr<LogSink> make_log_sink() {
    const char* stream = std::getenv("JOURNAL_STREAM");
    return stream != nullptr && is_journal_stream(stream, STDERR_FILENO) ? make_journal_sink() : make_stderr_sink();
}

}  // namespace gradsieve::daemon

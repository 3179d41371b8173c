#include "daemon/log.hpp"

#include <fmt/format.h>

#include <array>

namespace gradsieve::daemon {

namespace {

constexpr std::array<std::string_view, 4> kLevelNames = {"error", "warning", "info", "debug"};
// Distinct lines remembered; beyond it the oldest windows are ended early. A few hundred bytes each.
constexpr std::size_t kRepeatsLimit = 512;
constexpr std::size_t kTextLimitBytes = 4096;

/// One printable line: names come from clients and peers, and a terminal or a log reader must not obey them.
std::string printable(std::string_view text) {
    std::string line;
    line.reserve(text.size());
    for (const char character : text.substr(0, kTextLimitBytes)) {
        const auto byte = static_cast<unsigned char>(character);
        if (character == '\n') {
            line += " | ";
        } else if (byte < 0x20U || byte == 0x7FU) {
            line += fmt::format("\\x{:02x}", byte);
        } else {
            line += character;
        }
    }
    if (text.size() > kTextLimitBytes) line += "...";
    return line;
}

}  // namespace

Result<LogLevel> parse_log_level(std::string_view text) {
    for (std::size_t index = 0; index < kLevelNames.size(); ++index)
        if (kLevelNames[index] == text) return static_cast<LogLevel>(index);
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("log level '{}': allowed are error, warning, info and debug; correct it", printable(text)));
}

std::string_view log_level_name(LogLevel level) noexcept { return kLevelNames[static_cast<std::size_t>(level)]; }

Log::Log(LogLevel level, std::unique_ptr<LogSink> sink, const Clock& clock, LogRateLimit limit)
    : clock_(clock), limit_(limit), level_(level), sink_(std::move(sink)) {}

Log::~Log() {
    for (const auto& [key, repeats] : repeats_) say_held_back(repeats);
}

void Log::on_time() {
    const std::lock_guard lock(mutex_);
    end_windows(clock_.now());
}

void Log::write(LogLevel level, std::string_view text, const LogFields& fields) {
    if (!is_enabled(level)) return;
    const auto line = printable(text);
    const auto job = printable(fields.job);
    const auto peer = printable(fields.peer);
    const LogFields safe{job, peer, fields.step};
    const std::lock_guard lock(mutex_);
    const auto now = clock_.now();
    end_windows(now);
    auto& repeats = repeats_of(level, line, safe, now);
    if (repeats.passed >= limit_.burst) {
        ++repeats.held_back;
        return;
    }
    ++repeats.passed;
    sink_->write(level, line, safe);
}

Log::Repeats& Log::repeats_of(LogLevel level, const std::string& text, const LogFields& fields, TimePoint now) {
    const auto step = fields.step ? fmt::format("{}", *fields.step) : std::string();
    const auto key = fmt::format("{}\x1f{}\x1f{}\x1f{}", text, fields.job, fields.peer, step);
    if (const auto found = repeats_.find(key); found != repeats_.end()) return found->second;
    if (repeats_.size() >= kRepeatsLimit) {
        auto oldest = repeats_.begin();
        for (auto entry = repeats_.begin(); entry != repeats_.end(); ++entry)
            if (entry->second.window_start < oldest->second.window_start) oldest = entry;
        say_held_back(oldest->second);
        repeats_.erase(oldest);
    }
    Repeats fresh;
    fresh.window_start = now;
    fresh.level = level;
    fresh.text = text;
    fresh.job = fields.job;
    fresh.peer = fields.peer;
    fresh.step = fields.step;
    return repeats_.emplace(key, std::move(fresh)).first->second;
}

void Log::end_windows(TimePoint now) {
    for (auto entry = repeats_.begin(); entry != repeats_.end();) {
        if (now - entry->second.window_start < limit_.window) {
            ++entry;
            continue;
        }
        say_held_back(entry->second);
        entry = repeats_.erase(entry);
    }
}

void Log::say_held_back(const Repeats& repeats) {
    if (repeats.held_back == 0) return;
    const auto seconds = std::chrono::duration<double>(limit_.window).count();
    sink_->write(repeats.level,
                 fmt::format("{} (and {} times more within {:.0f} s)", repeats.text, repeats.held_back, seconds),
                 {repeats.job, repeats.peer, repeats.step});
}

}  // namespace gradsieve::daemon

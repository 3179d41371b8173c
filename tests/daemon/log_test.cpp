#include "daemon/log.hpp"

#include "base/unique_fd.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

namespace gradsieve::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// "level text JOB=.. PEER=.. STEP=..", into a list that outlives the log.
class ListSink final : public LogSink {
public:
    explicit ListSink(std::vector<std::string>& lines) : lines_(lines) {}
    void write(LogLevel level, const std::string& text, const LogFields& fields) override {
        auto line = std::string(log_level_name(level)) + " " + text;
        if (!fields.job.empty()) line += " JOB=" + std::string(fields.job);
        if (!fields.peer.empty()) line += " PEER=" + std::string(fields.peer);
        if (fields.step) line += " STEP=" + std::to_string(*fields.step);
        lines_.push_back(line);
    }

private:
    std::vector<std::string>& lines_;
};

struct LogTest : testing::Test {
    std::vector<std::string> lines;
    ManualClock clock;
    std::unique_ptr<Log> make_log(LogLevel level = LogLevel::kInfo) {
        return std::make_unique<Log>(level, std::make_unique<ListSink>(lines), clock,
                                     LogRateLimit{2, std::chrono::seconds(10)});
    }
};

TEST_F(LogTest, Line_carries_level_and_fields) {
    const auto log = make_log();
    log->warning("peer is silent", {.job = "demo", .peer = "b", .step = 42});
    log->error("port in use");
    EXPECT_THAT(lines, ElementsAre("warning peer is silent JOB=demo PEER=b STEP=42", "error port in use"));
}
TEST_F(LogTest, Line_below_the_level_is_left_out_until_the_level_is_set) {
    const auto log = make_log(LogLevel::kWarning);
    log->info("hidden");
    EXPECT_FALSE(log->is_enabled(LogLevel::kInfo));
    log->set_level(LogLevel::kDebug);
    log->debug("shown");
    EXPECT_THAT(lines, ElementsAre("debug shown"));
}
TEST_F(LogTest, Repeats_beyond_the_burst_are_summed_up_when_the_window_ends) {
    const auto log = make_log();
    for (int time = 0; time < 7; ++time) log->info("frame refused", {.peer = "b"});
    log->info("frame refused", {.peer = "c"});
    EXPECT_THAT(lines,
                ElementsAre("info frame refused PEER=b", "info frame refused PEER=b", "info frame refused PEER=c"))
        << "another peer is another line";
    lines.clear();
    clock.advance(std::chrono::milliseconds(9999));
    log->on_time();
    EXPECT_TRUE(lines.empty());
    clock.advance(std::chrono::milliseconds(1));
    log->on_time();
    EXPECT_THAT(lines, ElementsAre("info frame refused (and 5 times more within 10 s) PEER=b"));
    lines.clear();
    log->info("frame refused", {.peer = "b"});
    EXPECT_THAT(lines, ElementsAre("info frame refused PEER=b")) << "a new window passes lines again";
}
TEST_F(LogTest, Held_back_lines_are_told_at_the_end) {
    auto log = make_log();
    for (int time = 0; time < 3; ++time) log->error("no memory");
    log.reset();
    EXPECT_THAT(lines,
                ElementsAre("error no memory", "error no memory", "error no memory (and 1 times more within 10 s)"));
}
TEST_F(LogTest, Many_distinct_lines_all_pass_and_old_counts_are_not_lost) {
    const auto log = make_log();
    for (int time = 0; time < 3; ++time) log->info("first");
    clock.advance(std::chrono::milliseconds(1));
    for (int number = 0; number < 600; ++number) log->info("line " + std::to_string(number));
    EXPECT_EQ(lines.size(), 2U + 600U + 1U);
    EXPECT_THAT(lines, testing::Contains("info first (and 1 times more within 10 s)"));
}
TEST_F(LogTest, Control_characters_from_outside_cannot_forge_lines) {
    const auto log = make_log();
    log->info("job 'a\nb\x1b[31m' refused", {.job = "a\r"});
    EXPECT_THAT(lines, ElementsAre("info job 'a | b\\x1b[31m' refused JOB=a\\x0d"));
}
TEST_F(LogTest, Threads_may_write_at_once_and_nothing_is_lost) {
    const auto log = make_log();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread)
        threads.emplace_back([&log, thread] {
            for (int number = 0; number < 100; ++number)
                log->info("thread " + std::to_string(thread) + " says " + std::to_string(number));
        });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(lines.size(), 400U);
}

TEST(LogLevel, Every_name_parses_back_and_others_are_refused) {
    for (const auto level : {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo, LogLevel::kDebug})
        EXPECT_EQ(parse_log_level(log_level_name(level)).value(), level);
    EXPECT_EQ(parse_log_level("loud").error().to_string(),
              "invalid-argument: log level 'loud': allowed are error, warning, info and debug; correct it");
}

struct Pipe {
    UniqueFd read_end, write_end;
    Pipe() {
        int ends[2] = {-1, -1};
        EXPECT_EQ(::pipe(ends), 0);
        read_end.reset(ends[0]);
        write_end.reset(ends[1]);
    }
};

TEST(LogSink, Journal_stream_matches_only_its_own_file) {
    const Pipe pipe;
    const Pipe other;
    struct stat facts {};
    ASSERT_EQ(::fstat(pipe.write_end.get(), &facts), 0);
    const auto name = std::to_string(facts.st_dev) + ":" + std::to_string(facts.st_ino);
    EXPECT_TRUE(is_journal_stream(name, pipe.write_end.get()));
    EXPECT_FALSE(is_journal_stream(name, other.write_end.get()));
    EXPECT_FALSE(is_journal_stream(name + "x", pipe.write_end.get()));
    EXPECT_FALSE(is_journal_stream("12", pipe.write_end.get()));
    EXPECT_FALSE(is_journal_stream("", pipe.write_end.get()));
}
TEST(LogSink, Journal_gets_message_priority_identifier_and_the_fields_that_are_set) {
    EXPECT_THAT(journal_entries(LogLevel::kWarning, "step 7 has no result", {.job = "demo", .peer = "b", .step = 7}),
                ElementsAre("MESSAGE=step 7 has no result", "PRIORITY=4", "SYSLOG_IDENTIFIER=gradsieved", "JOB=demo",
                            "PEER=b", "STEP=7"));
    EXPECT_THAT(journal_entries(LogLevel::kError, "x=y", {}),
                ElementsAre("MESSAGE=x=y", "PRIORITY=3", "SYSLOG_IDENTIFIER=gradsieved"));
    EXPECT_THAT(journal_entries(LogLevel::kInfo, "", {.step = 0}), testing::IsSupersetOf({"PRIORITY=6", "STEP=0"}));
    EXPECT_THAT(journal_entries(LogLevel::kDebug, "", {.peer = "b"}), testing::IsSupersetOf({"PRIORITY=7", "PEER=b"}));
}
TEST(LogSink, Standard_error_gets_time_level_text_and_fields) {
    testing::internal::CaptureStderr();
    make_stderr_sink()->write(LogLevel::kWarning, "100 % {} of it", {.job = "demo", .step = 3});
    const auto text = testing::internal::GetCapturedStderr();
    EXPECT_THAT(text, testing::MatchesRegex("[0-9-]+T[0-9:.]+ warning 100 % \\{\\} of it JOB=demo STEP=3\n"));
}

std::string take_all(int fd) {
    std::string all;
    std::array<char, 4096> part{};
    pollfd readable{fd, POLLIN, 0};
    while (::poll(&readable, 1, 0) == 1)
        all.append(part.data(), static_cast<std::size_t>(::read(fd, part.data(), 4096)));
    return all;
}
TEST(LogSink, Reader_of_standard_error_that_has_stopped_stops_nobody_and_is_told_what_it_missed) {
    const Pipe pipe;
    const UniqueFd own(::dup(STDERR_FILENO));
    ASSERT_EQ(::dup2(pipe.write_end.get(), STDERR_FILENO), STDERR_FILENO);
    const auto sink = make_stderr_sink();
    const std::string text(5000, 'x');
    for (int line = 0; line < 100; ++line) sink->write(LogLevel::kInfo, text, {});
    const auto first = take_all(pipe.read_end.get());
    sink->write(LogLevel::kInfo, "read again", {});
    const auto second = take_all(pipe.read_end.get());
    ASSERT_EQ(::dup2(own.get(), STDERR_FILENO), STDERR_FILENO);
    const auto lines = std::count(first.begin(), first.end(), '\n');
    EXPECT_GE(lines, 8);
    EXPECT_LT(lines, 100);
    EXPECT_EQ(first.back(), '\n');
    EXPECT_THAT(second, HasSubstr("warning " + std::to_string(100 - lines) + " lines are missing here"));
    EXPECT_THAT(second, testing::EndsWith("info read again\n"));
}

}  // namespace
}  // namespace gradsieve::daemon

// The built tool as its users run it: exit codes, streams and time, against status pages made by hand. Children stand
// in for daemons, so that a page's owner can be suspended or killed.
#include "tests/cli/cli_fixture.hpp"

#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>

namespace gradsieve::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kWatchdogMs = 20'000;

/// A child whose standard output and error are read here; killed at the end if it is still there.
class Child {
public:
    explicit Child(const std::function<void()>& body) {
        int out[2] = {-1, -1};
        int error[2] = {-1, -1};
        EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
        EXPECT_EQ(::pipe2(error, O_CLOEXEC), 0);
        pid_ = ::fork();
        if (pid_ == 0) {
            ::dup2(out[1], STDOUT_FILENO);
            ::dup2(error[1], STDERR_FILENO);
            body();
            ::_exit(99);
        }
        out_.reset(out[0]);
        error_.reset(error[0]);
        ::close(out[1]);
        ::close(error[1]);
    }
    ~Child() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }
    void signal(int number) const { EXPECT_EQ(::kill(pid_, number), 0); }
    /// Reads standard output until `text` is in it; fails when the child ends or the watchdog barks.
    void wait_for_output(const std::string& text) {
        while (ran_.out.find(text) == std::string::npos)
            ASSERT_TRUE(read_some(out_, ran_.out)) << "no '" << text << "' in: " << ran_.out;
    }
    /// Waits until the kernel reports a change of state (suspended or ended) and gives the wait status.
    int wait_for_change(int options) const {
        int status = 0;
        EXPECT_EQ(::waitpid(pid_, &status, options), pid_);
        return status;
    }
    /// Until it ends.
    Ran<int> finish() {
        while (read_some(out_, ran_.out)) {}
        while (read_some(error_, ran_.error)) {}
        const int status = wait_for_change(0);
        pid_ = -1;
        ran_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return ran_;
    }

private:
    static bool read_some(const UniqueFd& fd, std::string& text) {
        pollfd entry{fd.get(), POLLIN, 0};
        if (::poll(&entry, 1, kWatchdogMs) != 1) return false;
        std::array<char, 4096> bytes{};
        const auto count = ::read(fd.get(), bytes.data(), bytes.size());
        if (count > 0) text.append(bytes.data(), static_cast<std::size_t>(count));
        return count > 0;
    }

    pid_t pid_ = -1;
    UniqueFd out_, error_;
    Ran<int> ran_{-1, {}, {}};
};

std::function<void()> tool(std::vector<std::string> arguments) {
    return [arguments = std::move(arguments)]() mutable {
        std::vector<char*> pointers;
        std::string program = GRADSIEVE_TOOL;
        pointers.push_back(program.data());
        for (auto& argument : arguments) pointers.push_back(argument.data());
        pointers.push_back(nullptr);
        ::setenv("LC_ALL", "C.UTF-8", 1);
        ::setenv("COLUMNS", "100", 1);
        ::execv(program.c_str(), pointers.data());
    };
}
Ran<int> run(const std::vector<std::string>& arguments) { return Child(tool(arguments)).finish(); }

class ProgramTest : public CliTest {
protected:
    /// A child that makes the page, says so, and then waits to be signalled.
    [[nodiscard]] std::function<void()> daemon_body(bool is_polite) const {
        return [this, is_polite] {
            auto page = make_page(golden_text("two_nodes.json"));
            if (is_polite) {
                page.set_stopped();
                ::_exit(0);
            }
            const char ready[] = "ready\n";
            if (::write(STDOUT_FILENO, ready, sizeof(ready) - 1) < 0) ::_exit(98);
            for (;;) ::pause();
        };
    }
    [[nodiscard]] std::vector<std::string> status(std::vector<std::string> more = {}) const {
        std::vector<std::string> arguments = {"status", "--socket", socket()};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return arguments;
    }
};

TEST_F(ProgramTest, Live_daemon_is_zero_without_colour_in_a_pipe) {
    Child daemon(daemon_body(false));
    daemon.wait_for_output("ready");
    const auto ran = run(status());
    EXPECT_EQ(ran.code, 0);
    EXPECT_THAT(ran.out, StartsWith("● live  pid " + std::to_string(daemon.pid()) + " · up "));
    EXPECT_EQ(ran.out.find('\x1b'), std::string::npos);
    EXPECT_EQ(ran.error, "");
}
TEST_F(ProgramTest, Killed_daemon_is_four_and_its_last_word_is_shown) {
    Child daemon(daemon_body(false));
    daemon.wait_for_output("ready");
    daemon.signal(SIGKILL);
    EXPECT_EQ(daemon.finish().code, 128 + SIGKILL);
    const auto ran = run(status());
    EXPECT_EQ(ran.code, 4);
    EXPECT_THAT(ran.out, StartsWith("✖ dead  pid "));
    EXPECT_THAT(ran.out, HasSubstr("job fashion"));
    EXPECT_THAT(run(status({"--json"})).out, HasSubstr("\"state\": \"dead\""));
}
TEST_F(ProgramTest, Stopped_daemon_is_five) {
    EXPECT_EQ(Child(daemon_body(true)).finish().code, 0);
    const auto ran = run(status());
    EXPECT_EQ(ran.code, 5);
    EXPECT_THAT(ran.out, StartsWith("○ stopped  pid "));
}
TEST_F(ProgramTest, Suspended_daemon_is_three_and_the_way_on_is_named) {
    // A heartbeat of long ago stands in for waiting that long; the owner is this process, and is there.
    auto page = make_page(golden_text("two_nodes.json"));
    page.beat(SteadyClock().now() - std::chrono::seconds(100));
    const auto hung = run(status());
    EXPECT_EQ(hung.code, 3);
    EXPECT_THAT(hung.out, StartsWith("▲ hung  pid " + std::to_string(::getpid()) + " is there · no heartbeat for "));

    Child daemon([this] {
        auto own = make_page(golden_text("two_nodes.json"));
        own.beat(SteadyClock().now() - std::chrono::seconds(100));
        ::raise(SIGSTOP);
    });
    ASSERT_TRUE(WIFSTOPPED(daemon.wait_for_change(WUNTRACED)));
    const auto suspended = run(status());
    EXPECT_EQ(suspended.code, 3);
    EXPECT_THAT(suspended.out, StartsWith("▲ hung  pid " + std::to_string(daemon.pid()) + " suspended"));
    EXPECT_THAT(suspended.out, HasSubstr("'kill -CONT " + std::to_string(daemon.pid()) + "' lets it go on"));
}
TEST_F(ProgramTest, Folder_without_a_page_is_six_and_a_broken_page_is_seven) {
    EXPECT_EQ(run(status()).code, 6);
    std::ofstream(folder() + "/status") << "x";
    EXPECT_EQ(run(status()).code, 7);
    EXPECT_EQ(run(status({"--json"})).code, 7);
}
TEST_F(ProgramTest, Wrong_usage_is_one) {
    EXPECT_EQ(run({}).code, 1);
    EXPECT_EQ(run({"--version"}).code, 0);
    EXPECT_EQ(run({"--version"}).out, "gradsieve " GRADSIEVE_VERSION "\n");
}
TEST_F(ProgramTest, Watch_redraws_until_interrupted_and_ends_with_the_daemons_code) {
    Child daemon(daemon_body(false));
    daemon.wait_for_output("ready");
    Child watch(tool(status({"--watch"})));
    watch.wait_for_output("job fashion");
    daemon.signal(SIGKILL);
    static_cast<void>(daemon.finish());
    watch.wait_for_output("✖ dead");  // within its next second
    watch.signal(SIGINT);
    EXPECT_EQ(watch.finish().code, 4);
}
TEST_F(ProgramTest, Page_of_a_user_is_found_after_its_socket_is_gone) {
    const auto runtime = folder();
    std::filesystem::create_directory(runtime + "/gradsieve");
    auto page = shm::StatusPageWriter::make(runtime + "/gradsieve/status", "");
    ASSERT_TRUE(page.is_ok());
    ASSERT_TRUE(page->publish("{}", SteadyClock().now()).is_ok());
    page->set_stopped();
    const auto ran = Child([&] {
                         ::unsetenv("GRADSIEVE_SOCKET");
                         ::setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
                         tool({"status"})();
                     }).finish();
    // A daemon of the system may run where this test does; then that one is shown.
    if (std::filesystem::exists("/run/gradsieve/status"))
        GTEST_SKIP() << "skipped: /run/gradsieve/status exists on this machine";
    EXPECT_EQ(ran.code, 5) << ran.error;
}

}  // namespace
}  // namespace gradsieve::cli

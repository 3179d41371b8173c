// The MPS control daemon of busy-trainer, with a stand-in for NVIDIA's program: it starts, says why not, and ends with
// the object or the process that made it.
#include "tests/gpu/mps_control.hpp"

#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

namespace gradsieve::gpu_check {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// Serves until something is written to its pipe; with STUBBORN, whatever is written.
constexpr const char* kStandIn = R"(#!/bin/sh
pipe=$CUDA_MPS_PIPE_DIRECTORY/control
case "$*" in
"-d --multiuser-server")
    [ -z "$REFUSES" ] || { echo "$REFUSES" >&2; exit 1; }
    mkfifo "$pipe"
    "$0" serve </dev/null >/dev/null 2>&1 &
    ;;
serve)
    echo $$ >"$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
    read -r line <"$pipe"
    while [ -n "$STUBBORN" ]; do read -r line <"$pipe"; done
    ;;
*)
    read -r line
    [ -p "$pipe" ] || exit 1
    [ "$line" != quit ] || echo quit >"$pipe"
    ;;
esac
)";

class MpsControlTest : public ::testing::Test {
protected:
    MpsControlTest() {
        auto pattern = (fs::temp_directory_path() / "gradsieve-mps-test-XXXXXX").string();
        folder_ = ::mkdtemp(pattern.data());
        path_.emplace("PATH", folder_ + ":/usr/bin:/bin");
        temporary_.emplace("TMPDIR", folder_);
    }
    ~MpsControlTest() override { fs::remove_all(folder_); }
    void install() const {
        const auto program = fs::path(folder_) / "nvidia-cuda-mps-control";
        std::ofstream(program) << kStandIn;
        fs::permissions(program, fs::perms::owner_all);
    }
    [[nodiscard]] static pid_t process_of(const MpsControl& control) {
        pid_t process = -1;
        std::ifstream(control.pipe_folder() + "/nvidia-cuda-mps-control.pid") >> process;
        return process;
    }
    [[nodiscard]] static bool ends(pid_t process) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (::kill(process, 0) == 0) {
            if (std::chrono::steady_clock::now() > deadline) return false;
            ::waitpid(-1, nullptr, WNOHANG);
            ::poll(nullptr, 0, 5);
        }
        return true;
    }
    [[nodiscard]] std::size_t left_behind() const {
        const auto is_ours = [](const auto& entry) {
            return entry.path().filename().string().starts_with("gradsieve");
        };
        return static_cast<std::size_t>(
            std::count_if(fs::directory_iterator(folder_), fs::directory_iterator(), is_ours));
    }

private:
    std::string folder_;
    std::optional<ChildVariable> path_, temporary_;
};

TEST_F(MpsControlTest, It_runs_as_long_as_the_object_and_leaves_nothing) {
    install();
    pid_t process = -1;
    {
        const MpsControl control;
        ASSERT_EQ(control.why_not(), "");
        process = process_of(control);
        ASSERT_GT(process, 0);
        EXPECT_EQ(::kill(process, 0), 0);
        EXPECT_EQ(fs::status(control.pipe_folder()).permissions(), fs::perms::all) << "open to every user";
        EXPECT_FALSE(MpsControl::is_one_there()) << "nobody who was not told of its folder uses it";
    }
    EXPECT_TRUE(ends(process));
    EXPECT_EQ(left_behind(), 0U);
}
TEST_F(MpsControlTest, One_that_does_not_quit_is_killed) {
    install();
    const ChildVariable stubborn("STUBBORN", "1");
    pid_t process = -1;
    {
        const MpsControl control;
        ASSERT_EQ(control.why_not(), "");
        process = process_of(control);
    }
    EXPECT_TRUE(ends(process));
}
TEST_F(MpsControlTest, It_ends_with_the_process_that_made_it) {
    install();
    int answer[2];
    ASSERT_EQ(::pipe(answer), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const MpsControl control;
        const pid_t process = process_of(control);
        const auto written = ::write(answer[1], &process, sizeof(process));
        ::_exit(written == sizeof(process) ? 0 : 1);  // no destructor runs
    }
    pid_t process = -1;
    ASSERT_EQ(::read(answer[0], &process, sizeof(process)), static_cast<ssize_t>(sizeof(process)));
    ::waitpid(child, nullptr, 0);
    ASSERT_GT(process, 0);
    EXPECT_TRUE(ends(process));
    ::close(answer[0]);
    ::close(answer[1]);
}
TEST_F(MpsControlTest, What_does_not_start_says_why) {
    EXPECT_THAT(MpsControl().why_not(), HasSubstr("not found"));
    EXPECT_FALSE(MpsControl::is_one_there());
    install();
    const ChildVariable refuses("REFUSES", "an instance of this daemon is already running");
    EXPECT_THAT(MpsControl().why_not(), HasSubstr("did not start: an instance of this daemon is already running"));
    EXPECT_EQ(left_behind(), 0U);
}

}  // namespace
}  // namespace gradsieve::gpu_check

#include "shm/process.hpp"

#include "shm/local_socket.hpp"
#include "tests/shm/shm_test_support.hpp"

#include <sys/prctl.h>

namespace gradsieve::shm {
namespace {

TEST(Process, Own_process_runs_and_started_after_boot) {
    const auto sight = look_at_process(::getpid());
    EXPECT_EQ(sight.presence, ProcessPresence::kRunning);
    EXPECT_GT(sight.start_ticks, 0U);
    EXPECT_EQ(look_at_process(::getpid()).start_ticks, sight.start_ticks);
}

TEST(Process, Name_with_spaces_and_parentheses_does_not_move_the_fields) {
    const auto before = look_at_process(::getpid());
    std::array<char, 16> name{};
    ASSERT_EQ(::prctl(PR_GET_NAME, name.data()), 0);
    ASSERT_EQ(::prctl(PR_SET_NAME, "a) Z 1 (b"), 0);
    const auto after = look_at_process(::getpid());
    ASSERT_EQ(::prctl(PR_SET_NAME, name.data()), 0);
    EXPECT_EQ(after.presence, ProcessPresence::kRunning);
    EXPECT_EQ(after.start_ticks, before.start_ticks);
}

TEST(Process, Zombie_and_missing_processes_are_gone) {
    Child child([] { return 0; });
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
    EXPECT_EQ(look_at_process(child.pid()).presence, ProcessPresence::kGone);
    const auto pid = child.pid();
    EXPECT_EQ(child.wait_exit(), 0);
    EXPECT_EQ(look_at_process(pid).presence, ProcessPresence::kGone);
    EXPECT_EQ(look_at_process(0).presence, ProcessPresence::kGone);
    EXPECT_EQ(look_at_process(-1).presence, ProcessPresence::kGone);
}

TEST(Process, Opened_process_polls_readable_once_it_died_also_by_kill) {
    Child child([] { return ::pause(); });
    const auto process = open_process(child.pid()).value();
    EXPECT_FALSE(becomes_readable(process.get(), 0));
    EXPECT_EQ(::fcntl(process.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    child.kill_now();
    EXPECT_TRUE(becomes_readable(process.get()));
}

TEST(Process, Forked_child_that_holds_the_socket_does_not_keep_a_dead_client_alive) {
    TempFolder folder;
    auto listener = LocalListener::make({.path = folder / "d.sock"}).value();
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    UniqueFd heard(ends[0]);
    UniqueFd said(ends[1]);
    ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // so that the grandchild is ours to reap
    // The client forks a grandchild (a data loader) that inherits the connected socket, then is killed.
    Child client([&] {
        auto connection = LocalConnection::connect(folder / "d.sock", soon());
        if (!connection.is_ok()) return 1;
        const auto grandchild = ::fork();
        said.reset();
        if (grandchild != 0) return connection->send(Bytes(1), {}).is_ok() ? ::pause() : 3;
        std::array<char, 1> nothing{};
        return ::read(heard.get(), nothing.data(), 1) == 0 ? 0 : 2;  // until the test closes its end
    });
    ASSERT_TRUE(becomes_readable(listener.fd()));
    auto connection = listener.accept().value();
    const auto process = open_process(connection.peer_credentials()->pid).value();
    ASSERT_TRUE(connection.receive(soon()).is_ok()) << "it has forked";
    client.kill_now();
    EXPECT_TRUE(becomes_readable(process.get())) << "the pidfd knows";
    EXPECT_EQ(connection.receive(past()).status().code(), StatusCode::kTimeout)
        << "the socket does not: it is still open";
    EXPECT_EQ(client.wait_exit(), 128 + SIGKILL);
    said.reset();
    EXPECT_EQ(connection.receive(soon()).status().code(), StatusCode::kUnavailable);
    int status = -1;
    EXPECT_GT(::waitpid(-1, &status, 0), 0);
    EXPECT_EQ(status, 0);
}

TEST(Process, Opening_a_dead_process_is_not_found_and_no_process_is_an_invalid_argument) {
    Child child([] { return 0; });
    const auto pid = child.pid();
    ASSERT_EQ(child.wait_exit(), 0);
    EXPECT_EQ(open_process(pid).status().code(), StatusCode::kNotFound);
    const auto status = open_process(0).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.text().find("PID namespace"), std::string::npos) << status.text();
}

TEST(Process, Boot_and_namespace_are_stable_and_known) {
    EXPECT_EQ(boot_hash(), boot_hash());
    EXPECT_NE(pid_namespace(), 0U);
    Child child([expected = pid_namespace()] { return pid_namespace() == expected ? 0 : 1; });
    EXPECT_EQ(child.wait_exit(), 0);
}

}  // namespace
}  // namespace gradsieve::shm

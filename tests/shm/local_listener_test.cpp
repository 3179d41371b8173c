#include "shm/local_socket.hpp"
#include "tests/shm/shm_test_support.hpp"

#include <sys/socket.h>
#include <sys/stat.h>

#include <fstream>

namespace gradsieve::shm {
namespace {

unsigned mode_of(const std::string& path) {
    struct stat seen {};
    return ::stat(path.c_str(), &seen) == 0 ? seen.st_mode & 0777U : 0U;
}

TEST(LocalListener, Socket_is_made_with_its_folders_and_mode_and_goes_with_the_object) {
    TempFolder folder;
    const auto path = folder / "a/b/d.sock";
    {
        auto listener = LocalListener::make({.path = path, .mode = 0600}).value();
        EXPECT_EQ(mode_of(path), 0600U);
        EXPECT_EQ(mode_of(folder / "a/b") & 0700U, 0700U);
        EXPECT_EQ(listener.accept().status().code(), StatusCode::kTimeout) << "nobody is there, and it does not wait";
    }
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_TRUE(std::filesystem::is_empty(folder / "a/b")) << "no lock file, nothing";
}

TEST(LocalListener, Live_socket_is_refused_with_the_holders_pid) {
    TempFolder folder;
    auto listener = LocalListener::make({.path = folder / "d.sock"}).value();
    const auto status = LocalListener::make({.path = folder / "d.sock"}).status();
    EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
    EXPECT_NE(status.text().find("process " + std::to_string(::getpid()) + " listens there"), std::string::npos)
        << status.text();
    EXPECT_TRUE(LocalConnection::connect(folder / "d.sock", soon()).is_ok()) << "the live one is untouched";
}

TEST(LocalListener, Stale_socket_of_a_killed_process_is_replaced) {
    TempFolder folder;
    const auto path = folder / "d.sock";
    Child child([&] {
        auto listener = LocalListener::make({.path = path});
        ::raise(SIGKILL);
        return listener.is_ok() ? 0 : 1;
    });
    EXPECT_EQ(child.wait_exit(), 128 + SIGKILL);
    ASSERT_TRUE(std::filesystem::exists(path));
    auto listener = LocalListener::make({.path = path});
    ASSERT_TRUE(listener.is_ok()) << listener.status().to_string();
    EXPECT_TRUE(LocalConnection::connect(path, soon()).is_ok());
}

TEST(LocalListener, File_that_is_no_socket_is_left_alone) {
    TempFolder folder;
    std::ofstream(folder / "d.sock") << "precious";
    const auto status = LocalListener::make({.path = folder / "d.sock"}).status();
    EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
    EXPECT_NE(status.text().find("no socket"), std::string::npos) << status.text();
    EXPECT_EQ(std::filesystem::file_size(folder / "d.sock"), 8U);
}

TEST(LocalListener, Socket_that_replaced_ours_is_not_removed_by_us) {
    TempFolder folder;
    const auto path = folder / "d.sock";
    {
        auto listener = LocalListener::make({.path = path}).value();
        std::filesystem::remove(path);
        std::ofstream(path) << "somebody else's";
    }
    EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(LocalListener, Unknown_group_is_not_found_and_leaves_no_socket) {
    TempFolder folder;
    const auto status = LocalListener::make({.path = folder / "d.sock", .group = "no-such-group-here"}).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_NE(status.text().find("no-such-group-here"), std::string::npos) << status.text();
    EXPECT_FALSE(std::filesystem::exists(folder / "d.sock"));
}

TEST(LocalListener, Group_is_set_by_name) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a file to another group";
    TempFolder folder;
    auto listener = LocalListener::make({.path = folder / "d.sock", .group = "daemon"}).value();
    struct stat seen {};
    ASSERT_EQ(::stat((folder / "d.sock").c_str(), &seen), 0);
    EXPECT_EQ(seen.st_gid, 1U) << "group daemon, in every Debian";
}

TEST(LocalListener, Path_too_long_for_an_address_is_refused_in_words) {
    const auto status = LocalListener::make({.path = "/tmp/" + std::string(200, 'x')}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.text().find("205 bytes; allowed is 1 to 107"), std::string::npos) << status.text();
}

TEST(LocalListener, Folder_that_may_not_be_made_is_permission_denied) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
    Child child([] {
        if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 2;
        const auto status = LocalListener::make({.path = "/proc/1/gradsieve/d.sock"}).status();
        const auto other = LocalListener::make({.path = "/root-owned-folder/d.sock"}).status();
        return !status.is_ok() && other.code() == StatusCode::kPermissionDenied ? 0 : 1;
    });
    EXPECT_EQ(child.wait_exit(), 0);
}

TEST(LocalListener, Two_starting_at_once_do_not_both_win) {
    TempFolder folder;
    const auto path = folder / "d.sock";
    for (int round = 0; round < 20; ++round) {
        const auto start = [&] {
            auto listener = LocalListener::make({.path = path});
            if (!listener.is_ok()) return listener.status().code() == StatusCode::kAlreadyExists ? 7 : 1;
            // Holds on until the test has heard from the other. Nobody is accepted: the other's look at the socket may
            // wait in the queue already.
            return ::pause() == -1 ? 0 : 2;
        };
        Child first(start);
        Child second(start);
        int status = 0;
        const auto loser = ::waitpid(-1, &status, 0);
        EXPECT_TRUE(loser == first.pid() || loser == second.pid());
        EXPECT_EQ(WEXITSTATUS(status), 7);
        (loser == first.pid() ? first : second).forget();
    }
}

TEST(LocalListener, Adopted_socket_serves_and_is_not_removed) {
    TempFolder folder;
    const auto path = folder / "d.sock";
    auto made = LocalListener::make({.path = path}).value();
    {
        auto adopted = LocalListener::adopt(duplicate(made.fd())).value();
        auto client = LocalConnection::connect(path, soon()).value();
        ASSERT_TRUE(becomes_readable(adopted.fd()));
        auto connection = adopted.accept().value();
        EXPECT_EQ(::fcntl(connection.fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        ASSERT_TRUE(client.send(Bytes(5), {}).is_ok());
        EXPECT_EQ(connection.receive(soon())->bytes.size(), 5U);
    }
    EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(LocalListener, Adopting_anything_else_is_refused_naming_the_unit_setting) {
    const UniqueFd stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    for (const int fd : {STDIN_FILENO, stream.get()}) {
        const auto status = LocalListener::adopt(duplicate(fd)).status();
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_NE(status.text().find("ListenSequentialPacket="), std::string::npos) << status.text();
    }
}

TEST(LocalListener, Moved_listener_still_owns_its_file_once) {
    TempFolder folder;
    const auto path = folder / "d.sock";
    auto first = LocalListener::make({.path = path}).value();
    {
        auto second = std::move(first);
        EXPECT_TRUE(LocalConnection::connect(path, soon()).is_ok());
    }
    EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace gradsieve::shm

// What the service manager gets to hear, over a socket that the test holds; and what it hands in.
#include "daemon/service.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace gradsieve::daemon {
namespace {

void set_variable(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

/// The service manager's end, with an address in the abstract name space that the kernel chooses.
class Service : public testing::Test {
protected:
    Service() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        socklen_t bytes = sizeof(address);
        EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)), 0);
        EXPECT_EQ(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
        const auto name_bytes = bytes - offsetof(sockaddr_un, sun_path) - 1;
        set_variable("NOTIFY_SOCKET", "@" + std::string(address.sun_path + 1, name_bytes));
    }
    ~Service() override {
        for (const char* name :
             {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"})
            ::unsetenv(name);
    }
    /// Messages of a Unix datagram are there when the sender's call returns; "" if there is none.
    [[nodiscard]] std::string heard() const {
        std::array<char, 4096> text{};
        const auto count = ::recv(socket_.get(), text.data(), text.size(), MSG_DONTWAIT);
        return count <= 0 ? "" : std::string(text.data(), static_cast<std::size_t>(count));
    }

    [[nodiscard]] std::pair<std::string, UniqueFd> heard_with_descriptor() const {
        std::array<char, 4096> text{};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
        iovec part{text.data(), text.size()};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        const auto count = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        int fd = -1;
        if (const auto* header = CMSG_FIRSTHDR(&message); count > 0 && header != nullptr)
            std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
        return {count <= 0 ? "" : std::string(text.data(), static_cast<std::size_t>(count)), UniqueFd(fd)};
    }

private:
    UniqueFd socket_;
};

TEST_F(Service, Ready_comes_with_the_status_line) {
    notify_ready("node a, 100 % of it");
    EXPECT_EQ(heard(), "READY=1\nSTATUS=node a, 100 % of it");
    notify_status("two jobs");
    EXPECT_EQ(heard(), "STATUS=two jobs");
    EXPECT_EQ(heard(), "");
}
TEST_F(Service, Life_cycle_is_told_in_the_managers_words) {
    notify_reloading();
    EXPECT_EQ(heard(), "RELOADING=1");
    notify_alive();
    EXPECT_EQ(heard(), "WATCHDOG=1");
    notify_stopping();
    EXPECT_EQ(heard(), "STOPPING=1");
}
TEST_F(Service, Started_by_hand_nothing_is_said) {
    ::unsetenv("NOTIFY_SOCKET");
    notify_ready("node a");
    notify_alive();
    EXPECT_EQ(heard(), "");
    EXPECT_FALSE(watchdog_interval());
    EXPECT_FALSE(take_handed_descriptors().listener);
    EXPECT_FALSE(has_descriptor_store());
    EXPECT_TRUE(park_descriptor("gradsieve-state-1-0", 0).is_ok());
}
TEST_F(Service, Watchdog_is_fed_twice_per_period) {
    set_variable("WATCHDOG_USEC", "3000000");
    EXPECT_EQ(watchdog_interval(), std::chrono::milliseconds(1500)) << "no process named: it is for us";
    set_variable("WATCHDOG_PID", std::to_string(::getpid()));
    EXPECT_EQ(watchdog_interval(), std::chrono::milliseconds(1500));
    set_variable("WATCHDOG_PID", std::to_string(::getppid()));
    EXPECT_FALSE(watchdog_interval()) << "it is another process's";
    ::unsetenv("WATCHDOG_PID");
    set_variable("WATCHDOG_USEC", "soon");
    EXPECT_FALSE(watchdog_interval());
}

UniqueFd listening_socket(int type) {
    UniqueFd socket(::socket(AF_UNIX, type, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)), 0);
    EXPECT_EQ(::listen(socket.get(), 1), 0);
    return socket;
}
/// Runs `body` in a child whose descriptors 3 and 4 are the given ones, as a service manager starts it; its exit code.
template <typename Body>
int in_activated_child(int third, int fourth, bool is_for_us, Body body) {
    const auto pid = ::fork();
    if (pid == 0) {
        const int spare_third = ::fcntl(third, F_DUPFD, 100);
        const int spare_fourth = ::fcntl(fourth, F_DUPFD, 100);
        ::dup2(spare_third, 3);
        ::dup2(spare_fourth, 4);
        set_variable("LISTEN_FDS", "2");
        set_variable("LISTEN_PID", std::to_string(is_for_us ? ::getpid() : ::getppid()));
        std::_Exit(body());
    }
    int status = -1;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST_F(Service, Handed_listener_is_taken_and_every_other_descriptor_closed) {
    const auto stream = listening_socket(SOCK_STREAM);
    const auto packets = listening_socket(SOCK_SEQPACKET);
    const auto code = in_activated_child(stream.get(), packets.get(), true, [] {
        const auto taken = take_handed_descriptors().listener;
        if (!taken || taken->get() != 4) return 1;
        if (is_open(3)) return 2;
        if (std::getenv("LISTEN_FDS") != nullptr) return 3;  // children must not take it for theirs
        return (::fcntl(4, F_GETFD) & FD_CLOEXEC) != 0 ? 7 : 4;
    });
    EXPECT_EQ(code, 7);
}
TEST_F(Service, Only_one_listener_is_taken) {
    const auto first = listening_socket(SOCK_SEQPACKET);
    const auto second = listening_socket(SOCK_SEQPACKET);
    const auto code = in_activated_child(first.get(), second.get(), true, [] {
        const auto taken = take_handed_descriptors().listener;
        return taken && taken->get() == 3 && !is_open(4) ? 7 : 1;
    });
    EXPECT_EQ(code, 7);
}
TEST_F(Service, Parked_descriptors_come_back_by_name_and_strangers_are_closed) {
    const auto packets = listening_socket(SOCK_SEQPACKET);
    const UniqueFd memory(::memfd_create("state", MFD_CLOEXEC));
    set_variable("LISTEN_FDNAMES", "gradsieved.socket:gradsieve-state-0123456789abcdef-0");
    const auto code = in_activated_child(packets.get(), memory.get(), true, [] {
        const auto handed = take_handed_descriptors();
        if (!handed.listener || handed.listener->get() != 3) return 1;
        if (handed.kept.size() != 1 || handed.kept[0].fd.get() != 4) return 2;
        return handed.kept[0].name == "gradsieve-state-0123456789abcdef-0" ? 7 : 3;
    });
    EXPECT_EQ(code, 7);
    set_variable("LISTEN_FDNAMES", "gradsieved.socket:stored");
    const auto stranger = in_activated_child(packets.get(), memory.get(), true, [] {
        const auto handed = take_handed_descriptors();
        return handed.listener && handed.kept.empty() && !is_open(4) ? 7 : 1;
    });
    EXPECT_EQ(stranger, 7);
}
TEST_F(Service, Parking_sends_the_descriptor_with_its_name_and_unparking_the_name) {
    const UniqueFd memory(::memfd_create("state", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(memory.get(), 4097), 0);
    EXPECT_TRUE(has_descriptor_store());
    ASSERT_TRUE(park_descriptor("gradsieve-state-7-0", memory.get()).is_ok());
    const auto [text, parked] = heard_with_descriptor();
    EXPECT_EQ(text, "FDSTORE=1\nFDPOLL=0\nFDNAME=gradsieve-state-7-0");
    struct stat seen {};
    ASSERT_EQ(::fstat(parked.get(), &seen), 0);
    EXPECT_EQ(seen.st_size, 4097) << "it is the same memory";
    unpark_descriptor("gradsieve-state-7-0");
    EXPECT_EQ(heard(), "FDSTOREREMOVE=1\nFDNAME=gradsieve-state-7-0");
}
TEST_F(Service, A_manager_that_is_gone_is_an_error_that_says_what_it_costs) {
    set_variable("NOTIFY_SOCKET", "@nobody-listens-here-" + std::to_string(::getpid()));
    const UniqueFd memory(::memfd_create("state", MFD_CLOEXEC));
    const auto status = park_descriptor("gradsieve-state-7-0", memory.get());
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.text().find("'gradsieve-state-7-0' is not parked"), std::string::npos) << status.text();
    EXPECT_NE(status.text().find("the state ends with this process"), std::string::npos) << status.text();
}
TEST_F(Service, Descriptors_for_another_process_are_left_alone) {
    const auto packets = listening_socket(SOCK_SEQPACKET);
    const auto code = in_activated_child(packets.get(), packets.get(), false, [] {
        if (take_handed_descriptors().listener) return 1;
        return is_open(3) && is_open(4) ? 7 : 2;
    });
    EXPECT_EQ(code, 7);
}

}  // namespace
}  // namespace gradsieve::daemon

#include "shm/local_socket.hpp"

#include "tests/shm/shm_test_support.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <thread>

namespace gradsieve::shm {
namespace {

struct Pair {
    Pair() {
        std::array<int, 2> ends{};
        GRADSIEVE_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
        left = LocalConnection(UniqueFd(ends[0]));
        right = LocalConnection(UniqueFd(ends[1]));
    }
    LocalConnection left;
    LocalConnection right;
};

Bytes pattern_of(std::size_t count) {
    Bytes bytes(count);
    for (std::size_t index = 0; index < count; ++index) bytes[index] = std::byte(index * 31 % 251);
    return bytes;
}

/// Sends raw bytes and descriptors, as a hostile client would.
void send_raw(const LocalConnection& connection, ByteView bytes, const std::vector<int>& descriptors) {
    iovec place{const_cast<std::byte*>(bytes.data()), bytes.size()};
    Bytes control(CMSG_SPACE(descriptors.size() * sizeof(int)));
    msghdr header{};
    header.msg_iov = &place;
    header.msg_iovlen = 1;
    if (!descriptors.empty()) {
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        auto* const part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
        std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size() * sizeof(int));
    }
    ASSERT_GE(::sendmsg(connection.fd(), &header, MSG_NOSIGNAL), 0) << errno;
}

class LocalConnectionSizes : public testing::TestWithParam<std::size_t> {};

TEST_P(LocalConnectionSizes, Message_arrives_whole_with_its_descriptors) {
    Pair pair;
    const auto sent = pattern_of(GetParam());
    const UniqueFd memory(::memfd_create("passed-along", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(memory.get(), 12345), 0);
    const std::array<int, 2> descriptors{memory.get(), memory.get()};
    ASSERT_TRUE(pair.left.send(sent, descriptors).is_ok());
    const auto received = pair.right.receive(soon());
    ASSERT_TRUE(received.is_ok()) << received.status().to_string();
    EXPECT_EQ(received->bytes, sent);
    ASSERT_EQ(received->descriptors.size(), 2U);
    struct stat seen {};
    ASSERT_EQ(::fstat(received->descriptors[1].get(), &seen), 0);
    EXPECT_EQ(seen.st_size, 12345);
    EXPECT_EQ(::fcntl(received->descriptors[0].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}
INSTANTIATE_TEST_SUITE_P(Boundaries, LocalConnectionSizes,
                         testing::Values(0, 1, kInlineMessageLimitBytes - 1, kInlineMessageLimitBytes,
                                         kInlineMessageLimitBytes + 1, kLocalMessageLimitBytes));

TEST(LocalConnection, Message_beyond_the_limit_or_with_too_many_descriptors_is_refused) {
    Pair pair;
    const auto too_long = pair.left.send(Bytes(kLocalMessageLimitBytes + 1), {});
    EXPECT_EQ(too_long.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(too_long.text().find("33554433 bytes"), std::string::npos) << too_long.text();
    const std::array<int, 9> descriptors{};
    EXPECT_EQ(pair.left.send(Bytes(1), descriptors).code(), StatusCode::kInvalidArgument);
}

TEST(LocalConnection, Largest_number_of_descriptors_passes_with_a_long_message) {
    Pair pair;
    const UniqueFd memory(::memfd_create("passed-along", MFD_CLOEXEC));
    std::array<int, kLocalDescriptorLimit> descriptors{};
    descriptors.fill(memory.get());
    ASSERT_TRUE(pair.left.send(Bytes(kInlineMessageLimitBytes + 1), descriptors).is_ok());
    const auto received = pair.right.receive(soon());
    ASSERT_TRUE(received.is_ok()) << received.status().to_string();
    EXPECT_EQ(received->descriptors.size(), kLocalDescriptorLimit);
}

TEST(LocalConnection, Receive_without_a_message_times_out_at_once_or_at_the_deadline) {
    Pair pair;
    EXPECT_EQ(pair.right.receive(past()).status().code(), StatusCode::kTimeout);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    EXPECT_EQ(pair.right.receive(deadline).status().code(), StatusCode::kTimeout);
    EXPECT_GE(std::chrono::steady_clock::now(), deadline);
}

TEST(LocalConnection, Closed_other_side_is_unavailable_but_its_last_message_is_read_first) {
    Pair pair;
    ASSERT_TRUE(pair.left.send(pattern_of(3), {}).is_ok());
    pair.left = LocalConnection();
    EXPECT_EQ(pair.right.receive(soon())->bytes, pattern_of(3));
    EXPECT_EQ(pair.right.receive(soon()).status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(pair.right.send(pattern_of(3), {}).code(), StatusCode::kUnavailable) << "and no SIGPIPE";
}

TEST(LocalConnection, Sender_never_waits_for_a_reader_that_does_not_read) {
    Pair pair;
    Status status;
    for (int message = 0; message < 100'000 && status.is_ok(); ++message) status = pair.left.send(Bytes(4096), {});
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.text().find("does not read"), std::string::npos) << status.text();
}

TEST(LocalConnection, Hostile_packets_are_corrupt_and_leak_no_descriptor) {
    Pair pair;
    const auto before = open_descriptors();
    const UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(unsealed.get(), 100'000), 0);
    Bytes long_head{std::byte{1}};
    ByteWriter(long_head).write(std::uint64_t{100'000});
    Bytes huge_head{std::byte{1}};
    ByteWriter(huge_head).write(std::uint64_t{kLocalMessageLimitBytes + 1});
    const std::vector<std::pair<Bytes, std::vector<int>>> packets{
        {Bytes{std::byte{7}}, {unsealed.get()}},                                // no such carriage
        {Bytes{std::byte{1}}, {unsealed.get()}},                                // cut head
        {long_head, {}},                                                        // no memfd
        {long_head, {unsealed.get()}},                                          // may change under the reader
        {long_head, {STDIN_FILENO}},                                            // no memfd at all
        {huge_head, {unsealed.get()}},                                          // beyond the limit
        {Bytes{std::byte{0}}, std::vector<int>(9, unsealed.get())},             // too many descriptors
        {Bytes{std::byte{0}}, std::vector<int>(200, unsealed.get())},           // far too many
        {Bytes(kInlineMessageLimitBytes + 2, std::byte{0}), {unsealed.get()}},  // longer than any inline message
    };
    for (std::size_t index = 0; index < packets.size(); ++index) {
        send_raw(pair.left, packets[index].first, packets[index].second);
        const auto received = pair.right.receive(soon());
        ASSERT_EQ(received.status().code(), StatusCode::kCorrupt) << "packet " << index;
        EXPECT_NE(received.status().text().find("close it"), std::string::npos);
    }
    EXPECT_EQ(open_descriptors(), before + 1);
}

TEST(LocalConnection, Long_message_in_a_memfd_of_another_size_is_corrupt) {
    Pair pair;
    const UniqueFd memory(::memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(memory.get(), 99'999), 0);
    ASSERT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL), 0);
    Bytes head{std::byte{1}};
    ByteWriter(head).write(std::uint64_t{100'000});
    send_raw(pair.left, head, {memory.get()});
    EXPECT_EQ(pair.right.receive(soon()).status().code(), StatusCode::kCorrupt);
}

TEST(LocalConnection, Credentials_are_the_kernels_word_on_the_other_process) {
    TempFolder folder;
    auto listener = LocalListener::make({.path = folder / "d.sock"}).value();
    Child child([&] {
        auto connection = LocalConnection::connect(folder / "d.sock", soon());
        return connection.is_ok() && connection->receive(soon()).is_ok() ? 0 : 1;
    });
    ASSERT_TRUE(becomes_readable(listener.fd()));
    auto connection = listener.accept().value();
    const auto credentials = connection.peer_credentials().value();
    EXPECT_EQ(credentials.pid, child.pid());
    EXPECT_EQ(credentials.uid, ::geteuid());
    EXPECT_EQ(credentials.gid, ::getegid());
    ASSERT_TRUE(connection.send(Bytes(1), {}).is_ok());
    EXPECT_EQ(child.wait_exit(), 0);
}

TEST(LocalConnection, Connect_without_a_daemon_names_the_socket_and_what_to_do) {
    TempFolder folder;
    const auto status = LocalConnection::connect(folder / "none.sock", soon()).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    for (const auto* part : {"none.sock", "No such file", "systemctl start gradsieved", "GRADSIEVE_SOCKET"}) {
        EXPECT_NE(status.text().find(part), std::string::npos) << part << " in " << status.text();
    }
}

TEST(LocalConnection, Connect_to_a_socket_nobody_listens_on_says_so) {
    TempFolder folder;
    { ASSERT_TRUE(LocalListener::make({.path = folder / "d.sock"}).is_ok()); }
    const UniqueFd bound(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const auto path = folder / "d.sock";
    std::memcpy(address.sun_path, path.data(), path.size());
    ASSERT_EQ(::bind(bound.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const auto status = LocalConnection::connect(path, soon()).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.text().find("no gradsieved listens there"), std::string::npos) << status.text();
}

TEST(LocalConnection, Connect_without_permission_names_the_group_to_join) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
    TempFolder folder;
    ASSERT_EQ(::chmod((folder / "").c_str(), 0755), 0);
    auto listener = LocalListener::make({.path = folder / "d.sock", .mode = 0660}).value();
    Child child([&] {
        if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 2;
        const auto status = LocalConnection::connect(folder / "d.sock", soon()).status();
        const bool names_group = status.text().find("join the group 'root'") != std::string::npos;
        return status.code() == StatusCode::kUnavailable && names_group ? 0 : 1;
    });
    EXPECT_EQ(child.wait_exit(), 0);
}

TEST(LocalConnection, Connect_to_a_full_listener_ends_at_the_deadline) {
    TempFolder folder;
    const auto path = folder / "d.sock";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    const UniqueFd listening(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::listen(listening.get(), 0), 0);
    std::vector<LocalConnection> queued;
    Status status;
    for (int attempt = 0; attempt < 10 && status.is_ok(); ++attempt) {
        auto connection =
            LocalConnection::connect(path, std::chrono::steady_clock::now() + std::chrono::milliseconds(20));
        status = connection.status();
        if (connection.is_ok()) queued.push_back(std::move(*connection));
    }
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.text().find("accepts nobody right now"), std::string::npos) << status.text();
}

}  // namespace
}  // namespace gradsieve::shm

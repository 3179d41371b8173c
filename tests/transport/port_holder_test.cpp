#include "transport/port_holder.hpp"

#include "base/unique_fd.hpp"
#include "transport_testing.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <fstream>

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers

TEST(PortHolder, Listeners_of_the_port_are_found_in_the_kernels_table) {
    const std::string table =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:1BA5 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 "
        "10 0\n"
        "   1: 0100007F:1BA5 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 "
        "10 0\n"
        "   2: 0100007F:1BA6 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0 0 "
        "10 0\n"
        "   3: 00000000000000000000000000000000:1BA5 00000000000000000000000000000000:0000 0A 00000000:00000000 "
        "00:00000000 00000000 0 0 4714 1\n"
        "garbage\n\n";
    EXPECT_EQ(parse_listeners(table, 7077), (std::vector<std::uint64_t>{4711, 4714}));
    EXPECT_TRUE(parse_listeners(table, 7079).empty());
    EXPECT_TRUE(parse_listeners("", 7077).empty());
}
TEST(PortHolder, Our_own_listener_is_named_by_pid_and_program) {
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(listen(fd.get(), 1), 0);
    socklen_t address_bytes = sizeof address;
    ASSERT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &address_bytes), 0);
    const auto port = ntohs(address.sin_port);
    std::string program;
    std::getline(std::ifstream("/proc/self/comm"), program);
    EXPECT_EQ(port_holder_text(port),
              "port " + std::to_string(port) + " is held by pid " + std::to_string(getpid()) + " (" + program + ")");
}
TEST(PortHolder, A_free_port_has_no_holder_to_be_seen) {
    const auto port = find_free_port();
    EXPECT_FALSE(find_port_holder(port).has_value());
    EXPECT_EQ(port_holder_text(port),
              "port " + std::to_string(port) + " is held by a process that cannot be seen from here");
}

}  // namespace
}  // namespace gradsieve::transport

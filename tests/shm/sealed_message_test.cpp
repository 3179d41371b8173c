#include "shm/sealed_message.hpp"

#include "shm/local_socket.hpp"
#include "tests/shm/shm_test_support.hpp"

#include <cerrno>

namespace gradsieve::shm {
namespace {

TEST(SealedMessage, Bytes_come_back_and_can_change_no_more) {
    const Bytes sent(100'000, std::byte{17});
    const auto memory = seal_message(sent).value();
    EXPECT_EQ(unseal_message(memory.get(), sent.size()).value(), sent);
    EXPECT_EQ(::pwrite(memory.get(), "x", 1, 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::ftruncate(memory.get(), 1), -1);
}

TEST(SealedMessage, Reading_does_not_depend_on_where_the_sender_left_the_file_offset) {
    const Bytes sent(10, std::byte{1});
    const auto memory = seal_message(sent).value();
    ::lseek(memory.get(), 7, SEEK_SET);
    EXPECT_EQ(unseal_message(memory.get(), 10).value(), sent);
}

TEST(SealedMessage, Other_size_than_announced_is_corrupt) {
    const auto memory = seal_message(Bytes(10)).value();
    for (const std::uint64_t announced : {std::uint64_t{0}, std::uint64_t{9}, std::uint64_t{11}, UINT64_MAX}) {
        EXPECT_EQ(unseal_message(memory.get(), announced).status().code(), StatusCode::kCorrupt) << announced;
    }
    EXPECT_EQ(unseal_message(-1, 10).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace gradsieve::shm

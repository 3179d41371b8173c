#include "transport/outgoing.hpp"

#include "transport_testing.hpp"

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers

std::vector<SharedView> cut(const std::vector<ByteCount>& sizes) {
    std::vector<SharedView> parts;
    for (const auto bytes : sizes) parts.push_back(make_body(bytes, bytes));
    return parts;
}
std::vector<std::size_t> sizes_of(const std::vector<SharedView>& parts) {
    std::vector<std::size_t> sizes;
    for (const auto& part : parts) sizes.push_back(part.bytes().size());
    return sizes;
}

TEST(Outgoing, A_small_frame_is_one_part_with_its_header) {
    EXPECT_EQ(sizes_of(message_parts({20, 0, 0}, {})), (std::vector<std::size_t>{36}));
    EXPECT_EQ(sizes_of(message_parts({20, 0, 0}, cut({500, 524}))), (std::vector<std::size_t>{36 + 1024}));
}
TEST(Outgoing, A_large_part_is_sent_as_it_is_without_a_copy) {
    const auto body = cut({5000});
    const auto parts = message_parts({20, 0, 0}, body);
    ASSERT_EQ(sizes_of(parts), (std::vector<std::size_t>{36, 5000}));
    EXPECT_EQ(parts[1].bytes().data(), body[0].bytes().data());
    EXPECT_EQ(parts[1].owner(), body[0].owner());
}
TEST(Outgoing, Runs_of_small_parts_are_copied_together_between_large_ones) {
    const auto parts = message_parts({20, 0, 0}, cut({10, 20, 5000, 30, 6000, 0, 40, 50}));
    EXPECT_EQ(sizes_of(parts), (std::vector<std::size_t>{36, 30, 5000, 30, 6000, 90}));
}
TEST(Outgoing, A_message_never_has_more_parts_than_a_receiver_takes) {
    EXPECT_EQ(message_parts({20, 0, 0}, cut(std::vector<ByteCount>(1023, 1024))).size(), 1024U);
    EXPECT_EQ(sizes_of(message_parts({20, 0, 0}, cut(std::vector<ByteCount>(1024, 1024)))),
              (std::vector<std::size_t>{36, 1024 * 1024}));
}
TEST(Outgoing, Joining_copies_only_several_parts) {
    const auto one = cut({100});
    EXPECT_EQ(joined(one).bytes().data(), one[0].bytes().data());
    EXPECT_EQ(joined({}).bytes().size(), 0U);
    const std::vector<SharedView> two{make_body("grad"), make_body("sieve")};
    EXPECT_EQ(text_of(joined(two)), "gradsieve");
}
TEST(Outgoing, The_queue_limit_is_inclusive_and_says_so) {
    EXPECT_TRUE(check_queue(60, 40, 100).is_ok());
    const auto status = check_queue(60, 41, 100);
    EXPECT_EQ(status.to_string(),
              "resource-exhausted: queue of 60 bytes to the peer: 41 more would pass the limit of 100; "
              "wait until it drains");
    EXPECT_FALSE(check_queue(0, UINT64_MAX, 100).is_ok());
    EXPECT_FALSE(check_queue(UINT64_MAX, 1, 100).is_ok());
}
TEST(Outgoing, A_frame_over_the_limit_is_refused_and_one_at_the_limit_is_not) {
    EXPECT_TRUE(check_outgoing(2, 0, 1, make_frame(16, 0, cut({50, 50})), 100).is_ok());
    EXPECT_EQ(check_outgoing(2, 0, 1, make_frame(16, 0, cut({50, 51})), 100).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace gradsieve::transport

// Requests about kept state, against shm/state_message.cpp.
#include "shm/state_message.hpp"

#include "tests/shm/golden_bytes.hpp"

#include <gtest/gtest.h>

namespace gradsieve::shm {
namespace {

StateRequest sample_request() {
    StateRequest request;
    request.kind = StateRequestKind::kRead;
    request.number = 7;
    request.job_name = "demo";
    request.run_id = "7";
    request.group = "g";
    request.step = 40;
    request.digest = 0x1122334455667788;
    return request;
}
StateReply sample_reply() {
    return {
        .number = 7,
        .status = Status(),
        .parts = {
            {.group = "g", .step = 40, .node = "a", .ranks = {2, 300}, .digest = 0x0102030405060708, .bytes = 4096}}};
}

TEST(StateMessage, Request_has_its_golden_bytes) {
    EXPECT_EQ(hex_of(build_state_request(sample_request())),
              "04000000"
              "05"  // ABI version, message type
              "03"  // kind
              "0700000000000000"
              "0464656d6f"
              "0137"
              "0167"  // number, job name, run id, group
              "00"    // not of all groups
              "2800000000000000"
              "8877665544332211");  // step, digest
}
TEST(StateMessage, Reply_has_its_golden_bytes) {
    EXPECT_EQ(hex_of(build_state_reply(sample_reply())),
              "04000000"
              "06"  // ABI version, message type
              "0700000000000000"
              "0000"
              "00"  // number, status code, text
              "01"  // entries
              "0167"
              "2800000000000000"
              "0161"
              "02"
              "02"
              "ac02"  // group, step, node, ranks
              "0807060504030201"
              "0010000000000000");  // digest, bytes
}
TEST(StateMessage, Comes_back_as_it_was) {
    const auto request = parse_state_request(build_state_request(sample_request()));
    ASSERT_TRUE(request.is_ok()) << request.error().to_string();
    EXPECT_EQ(request->kind, StateRequestKind::kRead);
    EXPECT_EQ(request->job_name, "demo");
    EXPECT_EQ(request->run_id, "7");
    EXPECT_EQ(request->group, "g");
    EXPECT_EQ(request->step, 40U);
    EXPECT_EQ(request->digest, 0x1122334455667788U);
    EXPECT_FALSE(request->is_of_all_groups);
    const auto reply = parse_state_reply(build_state_reply(sample_reply()));
    ASSERT_TRUE(reply.is_ok()) << reply.error().to_string();
    EXPECT_EQ(reply->number, 7U);
    EXPECT_EQ(reply->parts, sample_reply().parts);
}
TEST(StateMessage, A_refusal_comes_back_with_its_words) {
    const auto reply = parse_state_reply(build_state_reply({.number = 1, .status = {StatusCode::kNotFound, "no"}}));
    ASSERT_TRUE(reply.is_ok());
    EXPECT_EQ(reply->status.to_string(), "not-found: no");
}
TEST(StateMessage, Cut_and_overlong_bytes_do_not_parse) {
    const auto request = build_state_request(sample_request());
    const auto reply = build_state_reply(sample_reply());
    for (std::size_t size = 0; size < request.size(); ++size)
        EXPECT_EQ(parse_state_request(ByteView(request).first(size)).status().code(), StatusCode::kCorrupt) << size;
    for (std::size_t size = 0; size < reply.size(); ++size)
        EXPECT_EQ(parse_state_reply(ByteView(reply).first(size)).status().code(), StatusCode::kCorrupt) << size;
    auto longer = request;
    longer.push_back(std::byte{0});
    EXPECT_EQ(parse_state_request(longer).status().code(), StatusCode::kCorrupt);
    longer = reply;
    longer.push_back(std::byte{0});
    EXPECT_EQ(parse_state_reply(longer).status().code(), StatusCode::kCorrupt);
}
TEST(StateMessage, A_count_beyond_the_bytes_is_refused_before_anything_is_allocated) {
    auto bytes = build_state_reply({.number = 1, .status = Status()});
    bytes.pop_back();
    for (const std::uint8_t byte : {0xFF, 0xFF, 0xFF, 0xFF, 0x7F}) bytes.push_back(std::byte{byte});
    EXPECT_EQ(parse_state_reply(bytes).status().code(), StatusCode::kCorrupt);
}
TEST(StateMessage, Values_out_of_range_are_named) {
    const auto refused = [](const auto& change) {
        auto request = sample_request();
        change(request);
        const auto status = parse_state_request(build_state_request(request)).status();
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
        return status.text();
    };
    EXPECT_NE(refused([](auto& request) { request.job_name.clear(); }).find("job name of 0 bytes"), std::string::npos);
    EXPECT_NE(refused([](auto& request) { request.job_name = "a\n"; }).find("unprintable"), std::string::npos);
    EXPECT_NE(refused([](auto& request) { request.step = Step{1} << 62U; }).find("step 4611686018427387904"),
              std::string::npos);
    EXPECT_NE(refused([](auto& request) { request.step = 0; }).find("step 0"), std::string::npos);
    EXPECT_NE(refused([](auto& request) { request.kind = static_cast<StateRequestKind>(9); }).find("kind 9"),
              std::string::npos);
}

}  // namespace
}  // namespace gradsieve::shm

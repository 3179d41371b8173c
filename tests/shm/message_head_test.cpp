// How messages begin, against shm/message_head.cpp.
#include "shm/message_head.hpp"

#include "shm/state_message.hpp"
#include "shm/trace_message.hpp"
#include "tests/shm/device_message_samples.hpp"

#include <gtest/gtest.h>

namespace gradsieve::shm {
namespace {

TEST(MessageHead, Type_is_seen_without_parsing_the_rest) {
    EXPECT_EQ(peek_message_type(build_attach_request({})), MessageType::kAttachRequest);
    EXPECT_EQ(peek_message_type(build_attach_reply({})), MessageType::kAttachReply);
    EXPECT_EQ(peek_message_type(build_bind_request(sample_bind_request())), MessageType::kBindRequest);
    EXPECT_EQ(peek_message_type(build_bind_reply({})), MessageType::kBindReply);
    EXPECT_EQ(peek_message_type(build_state_request({})), MessageType::kStateRequest);
    EXPECT_EQ(peek_message_type(build_state_reply({})), MessageType::kStateReply);
    EXPECT_EQ(peek_message_type(build_trace_request({})), MessageType::kTraceRequest);
    EXPECT_EQ(peek_message_type(build_trace_reply({})), MessageType::kTraceReply);
}

TEST(MessageHead, Cut_foreign_and_unknown_messages_have_no_type) {
    auto bytes = build_bind_reply({});
    EXPECT_EQ(peek_message_type(ByteView(bytes).first(4)), std::nullopt);
    EXPECT_EQ(peek_message_type({}), std::nullopt);
    for (const std::uint8_t type : {0, 9, 255}) {
        bytes[4] = std::byte{type};
        EXPECT_EQ(peek_message_type(bytes), std::nullopt) << static_cast<unsigned>(type);
    }
    bytes = build_bind_reply({});
    bytes[0] = std::byte{1};
    EXPECT_EQ(peek_message_type(bytes), std::nullopt) << "another version";
}

TEST(MessageHead, Status_survives_and_unknown_codes_do_not_parse) {
    Bytes bytes;
    ByteWriter writer(bytes);
    write_status(writer, {StatusCode::kBusy, "text"});
    ByteReader reader(bytes);
    Status status;
    ASSERT_TRUE(read_status(reader, "m", status).is_ok());
    EXPECT_EQ(status.to_string(), "busy: text");
    EXPECT_TRUE(reader.is_done());
    bytes[0] = std::byte{19};
    ByteReader unknown(bytes);
    Status untouched(StatusCode::kInternal, "before");
    EXPECT_EQ(read_status(unknown, "m", untouched).text().substr(0, 34), "m: status code 19, expected 0 to 1");
    EXPECT_EQ(untouched.text(), "before");
}

}  // namespace
}  // namespace gradsieve::shm

// The bytes of bind messages, against shm/device_message.cpp.
#include "shm/device_message.hpp"

#include "tests/shm/device_message_samples.hpp"
#include "tests/shm/golden_bytes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace gradsieve::shm {
namespace {

using ::testing::HasSubstr;

BindReply sample_reply() {
    BindReply reply;
    reply.number = 0x0102;
    reply.status = Status(StatusCode::kBusy, "no");
    return reply;
}

std::string repeated(const std::string& byte, std::size_t count) {
    std::string text;
    for (std::size_t place = 0; place < count; ++place) text += byte;
    return text;
}

TEST(DeviceMessage, Bind_request_has_its_golden_bytes) {
    EXPECT_EQ(hex_of(build_bind_request(sample_bind_request())),
              "04000000"
              "03"                // ABI version, message type
              "0500000000000000"  // number
              "02"
              "0000200000000000"
              "0000400000000000"  // descriptors: sizes of their allocations
              "03"                // bindings
              // tensor 1, IPC handle: handle, allocation's bytes, offset
              "01000000"
              "01" +
                  repeated("a1", 64) +
                  "0000100000000000"
                  "0002000000000000"
                  "00" +                // float32
                  repeated("77", 16) +  // UUID
                  "3c00000000000000"    // stride
                  "01" +
                  repeated("a2", 64) +
                  "0000100000000000"
                  "0004000000000000"  // second moment
                  // tensor 2, descriptors
                  "02000000"
                  "02"
                  "02"
                  "00"
                  "0000100000000000"
                  "0000100000000000"
                  "01"
                  "0000000000000000"
                  "0200000000000000"
                  "02" +  // bfloat16
                  repeated("77", 16) +
                  "0200100000000000"
                  "00"  // no second moment
                  // tensor 0 is unbound
                  "00000000"
                  "00");
}

TEST(DeviceMessage, Bind_reply_has_its_golden_bytes) {
    EXPECT_EQ(hex_of(build_bind_reply(sample_reply())),
              "04000000"
              "04"
              "0201000000000000"
              "0c00"
              "02"
              "6e6f");
}

TEST(DeviceMessage, Bind_request_survives_the_way_there_and_back) {
    const auto sent = sample_bind_request();
    const auto seen = parse_bind_request(build_bind_request(sent)).value();
    EXPECT_EQ(seen.number, 5U);
    EXPECT_EQ(seen.descriptor_bytes, sent.descriptor_bytes);
    ASSERT_EQ(seen.bindings.size(), 3U);
    EXPECT_EQ(seen.bindings[0].gradient.kind, MemoryKind::kIpcHandle);
    EXPECT_EQ(seen.bindings[0].gradient.handle, handle_of(0xA1));
    EXPECT_EQ(seen.bindings[0].gradient.offset_bytes, 0x200U);
    EXPECT_EQ(seen.bindings[0].second_moment.handle, handle_of(0xA2));
    EXPECT_EQ(seen.bindings[1].type, ElementType::kBf16);
    ASSERT_EQ(seen.bindings[1].gradient.pieces.size(), 2U);
    EXPECT_EQ(seen.bindings[1].gradient.pieces[1].descriptor, 1U);
    EXPECT_EQ(seen.bindings[1].gradient.pieces[1].bytes, 2U);
    EXPECT_EQ(seen.bindings[1].second_moment.kind, MemoryKind::kNone);
    EXPECT_TRUE(seen.bindings[2].is_unbinding());
    EXPECT_EQ(hex_of(build_bind_request(seen)), hex_of(build_bind_request(sent)));
}

TEST(DeviceMessage, Bind_reply_survives_the_way_there_and_back) {
    auto sent = sample_reply();
    sent.status = Status(StatusCode::kResourceExhausted, "gpu_memory_limit");
    const auto seen = parse_bind_reply(build_bind_reply(sent)).value();
    EXPECT_EQ(seen.number, 0x0102U);
    EXPECT_EQ(seen.status.to_string(), sent.status.to_string());
}

TEST(DeviceMessage, Largest_request_fits_one_message) {
    BindRequest request;
    request.bindings.resize(kBindingLimit, sample_bind_request().bindings[0]);
    const auto bytes = build_bind_request(request);
    EXPECT_LT(bytes.size(), std::size_t{32} << 20U);
    EXPECT_EQ(parse_bind_request(bytes)->bindings.size(), kBindingLimit);
}

TEST(DeviceMessage, Every_truncation_and_bytes_after_the_end_are_corrupt) {
    auto request = build_bind_request(sample_bind_request());
    auto reply = build_bind_reply(sample_reply());
    for (std::size_t count = 0; count < request.size(); ++count)
        EXPECT_EQ(parse_bind_request(ByteView(request).first(count)).status().code(), StatusCode::kCorrupt) << count;
    for (std::size_t count = 0; count < reply.size(); ++count)
        EXPECT_EQ(parse_bind_reply(ByteView(reply).first(count)).status().code(), StatusCode::kCorrupt) << count;
    EXPECT_EQ(parse_bind_reply(request).status().code(), StatusCode::kCorrupt) << "the wrong message";
    EXPECT_EQ(parse_bind_request(reply).status().code(), StatusCode::kCorrupt);
    request.push_back(std::byte{0});
    reply.push_back(std::byte{0});
    EXPECT_EQ(parse_bind_request(request).status().code(), StatusCode::kCorrupt);
    EXPECT_EQ(parse_bind_reply(reply).status().code(), StatusCode::kCorrupt);
}

TEST(DeviceMessage, Other_version_is_told_before_anything_else) {
    auto bytes = build_bind_request(sample_bind_request());
    bytes[0] = std::byte{9};
    EXPECT_EQ(parse_bind_request(bytes).status().code(), StatusCode::kVersionMismatch);
    EXPECT_EQ(parse_bind_reply(bytes).status().code(), StatusCode::kVersionMismatch);
}

TEST(DeviceMessage, Counts_larger_than_the_message_allocate_nothing) {
    BindRequest none;
    auto request = build_bind_request(none);
    EXPECT_EQ(parse_bind_request(request).status().code(), StatusCode::kCorrupt) << "no binding at all";
    request.pop_back();
    for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{kBindingLimit} + 1, UINT64_MAX}) {
        auto bytes = request;
        ByteWriter(bytes).write_varint(count);
        EXPECT_EQ(parse_bind_request(bytes).status().code(), StatusCode::kCorrupt) << count;
    }
}

TEST(DeviceMessage, Numbers_of_no_meaning_are_named) {
    const auto good = build_bind_request(sample_bind_request());
    const auto text_with = [&](std::size_t position, std::uint8_t value) {
        auto bytes = good;
        bytes[position] = std::byte{value};
        const auto status = parse_bind_request(bytes).status();
        EXPECT_EQ(status.code(), StatusCode::kCorrupt);
        return status.text();
    };
    constexpr std::size_t kFirst = 4 + 1 + 8 + 1 + 16 + 1;  // the first binding
    EXPECT_THAT(text_with(13, 9), HasSubstr("9 descriptors, expected 0 to 8"));
    EXPECT_THAT(text_with(kFirst + 4, 3), HasSubstr("memory kind 3, expected 0 to 2"));
    EXPECT_THAT(text_with(kFirst + 5 + 80, 3), HasSubstr("element type 3, expected 0 to 2"));
    constexpr std::size_t kSecond = kFirst + 5 + 80 + 1 + 16 + 8 + 81;
    EXPECT_THAT(text_with(kSecond + 5, 0), HasSubstr("memory of 0 pieces, expected 1 to 8"));
    EXPECT_THAT(text_with(kSecond + 5, 9), HasSubstr("memory of 9 pieces"));
}

TEST(DeviceMessage, Random_damage_is_refused_or_gives_checkable_values) {
    const auto seed = std::random_device{}();
    std::mt19937 random(seed);
    const auto good = build_bind_request(sample_bind_request());
    const auto tensors = three_device_tensors();
    for (int round = 0; round < 20'000; ++round) {
        auto bytes = good;
        for (unsigned hit = 0; hit < 1 + random() % 3; ++hit)
            bytes[4 + random() % (bytes.size() - 4)] = std::byte(random());
        const auto seen = parse_bind_request(bytes);
        if (!seen.is_ok()) continue;
        const auto again = parse_bind_request(build_bind_request(*seen));
        ASSERT_TRUE(again.is_ok()) << "seed " << seed;
        const auto status = check_bind_request(*seen, tensors, 2);
        ASSERT_TRUE(status.is_ok() || status.code() == StatusCode::kInvalidArgument) << "seed " << seed;
    }
}

}  // namespace
}  // namespace gradsieve::shm

#include "shm/message.hpp"

#include "tests/shm/golden_bytes.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace gradsieve::shm {
namespace {

AttachRequest sample_request() {
    AttachRequest request;
    request.job_name = "demo";
    request.run_id = "7";
    request.rank = 1;
    request.world_size = 4;
    request.codec = "all | f32";
    request.non_finite = NonFinitePolicy::kSkipStep;
    request.tensors = {{.name = "fc1.weight", .group = "", .shape = {128, 784}, .samples_max = 2},
                       {.name = "b", .group = "g", .shape = {}, .samples_max = 256, .has_second_moment = true},
                       {.name = "d", .group = "g", .shape = {2}, .on_device = true}};
    return request;
}

AttachReply sample_reply() {
    AttachReply reply;
    reply.status = Status();
    reply.control_bytes = 0x5000;
    reply.gradient_bytes = 0x0102030405;
    reply.result_bytes = 0x2000;
    reply.result_offsets = {0, 0x1040};
    return reply;
}

TEST(Message, Attach_request_has_its_golden_bytes) {
    EXPECT_EQ(hex_of(build_attach_request(sample_request())),
              "04000000"
              "01"  // ABI version, message type
              "0464656d6f"
              "0137"  // job name, run id
              "01000000"
              "04000000"  // rank, world size
              "09616c6c207c20663332"
              "01"  // codec, non-finite policy
              "03"  // tensors
              "0a6663312e776569676874"
              "00"  // name, group
              "02"
              "8001"
              "9006"
              "02"
              "00"  // shape, samples_max, flags
              "0162"
              "0167"
              "00"
              "8002"
              "01"
              "0164"
              "0167"
              "01"
              "02"
              "01"
              "02");
}

TEST(Message, Attach_reply_has_its_golden_bytes) {
    EXPECT_EQ(hex_of(build_attach_reply(sample_reply())),
              "04000000"
              "02"
              "0000"
              "00"
              "0050000000000000"
              "0504030201000000"
              "0020000000000000"
              "02"
              "0000000000000000"
              "4010000000000000"
              "00");
    AttachReply refusal;
    refusal.status = Status(StatusCode::kInvalidArgument, "no");
    refusal.host_only = {1, 0x0102};
    EXPECT_EQ(hex_of(build_attach_reply(refusal)),
              "04000000"
              "02"
              "0100"
              "026e6f"
              "0000000000000000"
              "0000000000000000"
              "0000000000000000"
              "00"
              "02"
              "01000000"
              "02010000");
    const auto seen = parse_attach_reply(build_attach_reply(refusal));
    ASSERT_TRUE(seen.is_ok());
    EXPECT_EQ(seen->host_only, refusal.host_only);
}

TEST(Message, Attach_request_survives_the_way_there_and_back) {
    const auto sent = sample_request();
    const auto seen = parse_attach_request(build_attach_request(sent)).value();
    EXPECT_EQ(seen.job_name, sent.job_name);
    EXPECT_EQ(seen.run_id, sent.run_id);
    EXPECT_EQ(seen.rank, sent.rank);
    EXPECT_EQ(seen.world_size, sent.world_size);
    EXPECT_EQ(seen.codec, sent.codec);
    EXPECT_EQ(seen.non_finite, sent.non_finite);
    ASSERT_EQ(seen.tensors.size(), 3U);
    EXPECT_EQ(seen.tensors[0].name, "fc1.weight");
    EXPECT_EQ(seen.tensors[0].shape, (std::vector<std::uint64_t>{128, 784}));
    EXPECT_EQ(seen.tensors[0].elements(), 100'352U);
    EXPECT_FALSE(seen.tensors[0].has_second_moment);
    EXPECT_EQ(seen.tensors[1].group, "g");
    EXPECT_EQ(seen.tensors[1].elements(), 1U) << "a scalar";
    EXPECT_EQ(seen.tensors[1].samples_max, 256U);
    EXPECT_TRUE(seen.tensors[1].has_second_moment);
    EXPECT_FALSE(seen.tensors[1].on_device);
    EXPECT_TRUE(seen.tensors[2].on_device);
    EXPECT_FALSE(seen.tensors[2].has_second_moment);
}

TEST(Message, Staged_tensor_has_flag_bit_2_and_nothing_else_that_differs) {
    auto request = sample_request();
    request.tensors[2].on_device = false;
    const auto plain = build_attach_request(request);
    request.tensors[2].staged = true;
    auto staged = build_attach_request(request);
    EXPECT_TRUE(parse_attach_request(staged)->tensors[2].staged);
    EXPECT_FALSE(parse_attach_request(staged)->tensors[2].on_device);
    EXPECT_FALSE(parse_attach_request(plain)->tensors[2].staged);
    ASSERT_EQ(std::to_integer<unsigned>(staged.back()), 4U);
    staged.back() = std::byte{0};
    EXPECT_EQ(staged, plain);
}

TEST(Message, Attach_reply_survives_the_way_there_and_back) {
    auto sent = sample_reply();
    sent.status = Status(StatusCode::kMismatch, "tensor 'a': shape differs");
    const auto seen = parse_attach_reply(build_attach_reply(sent)).value();
    EXPECT_EQ(seen.status.to_string(), sent.status.to_string());
    EXPECT_EQ(seen.control_bytes, sent.control_bytes);
    EXPECT_EQ(seen.gradient_bytes, sent.gradient_bytes);
    EXPECT_EQ(seen.result_bytes, sent.result_bytes);
    EXPECT_EQ(seen.result_offsets, sent.result_offsets);
}

TEST(Message, Reply_text_beyond_its_limit_is_cut_and_still_parses) {
    auto reply = sample_reply();
    reply.status = Status(StatusCode::kMismatch, std::string(kReplyTextLimitBytes + 5, 'x'));
    EXPECT_EQ(parse_attach_reply(build_attach_reply(reply))->status.text().size(), kReplyTextLimitBytes);
}

TEST(Message, Other_abi_version_is_a_mismatch_with_both_numbers_whatever_follows) {
    Bytes bytes;
    ByteWriter(bytes).write(std::uint32_t{1});
    for (const auto& tail : {Bytes{}, Bytes(100, std::byte{0xFF})}) {
        auto message = bytes;
        message.insert(message.end(), tail.begin(), tail.end());
        for (const auto& status : {parse_attach_request(message).status(), parse_attach_reply(message).status()}) {
            EXPECT_EQ(status.code(), StatusCode::kVersionMismatch);
            EXPECT_NE(status.text().find("the other side speaks version 1; this side speaks version 4"),
                      std::string::npos)
                << status.text();
            EXPECT_NE(status.text().find("same release"), std::string::npos) << status.text();
        }
    }
}

TEST(Message, Every_truncation_is_corrupt) {
    const auto request = build_attach_request(sample_request());
    const auto reply = build_attach_reply(sample_reply());
    for (std::size_t count = 0; count < request.size(); ++count) {
        EXPECT_EQ(parse_attach_request(ByteView(request).first(count)).status().code(), StatusCode::kCorrupt) << count;
    }
    for (std::size_t count = 0; count < reply.size(); ++count) {
        EXPECT_EQ(parse_attach_reply(ByteView(reply).first(count)).status().code(), StatusCode::kCorrupt) << count;
    }
}

TEST(Message, Bytes_after_the_end_and_the_wrong_message_are_corrupt) {
    auto request = build_attach_request(sample_request());
    auto reply = build_attach_reply(sample_reply());
    EXPECT_EQ(parse_attach_reply(request).status().code(), StatusCode::kCorrupt);
    EXPECT_EQ(parse_attach_request(reply).status().code(), StatusCode::kCorrupt);
    request.push_back(std::byte{0});
    reply.push_back(std::byte{0});
    EXPECT_EQ(parse_attach_request(request).status().code(), StatusCode::kCorrupt);
    EXPECT_EQ(parse_attach_reply(reply).status().code(), StatusCode::kCorrupt);
}

TEST(Message, Unknown_tensor_flags_are_corrupt) {
    auto bytes = build_attach_request(sample_request());
    bytes.back() = std::byte{8};
    const auto status = parse_attach_request(bytes).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_NE(status.text().find("tensor 'd' is cut or has unknown flags"), std::string::npos) << status.text();
}

TEST(Message, Counts_larger_than_the_message_allocate_nothing) {
    AttachRequest empty = sample_request();
    empty.tensors.clear();
    auto request = build_attach_request(empty);
    request.pop_back();
    ByteWriter(request).write_varint(kTensorLimit);
    EXPECT_EQ(parse_attach_request(request).status().code(), StatusCode::kCorrupt);
    request.resize(request.size() - 3);
    ByteWriter(request).write_varint(UINT64_MAX);
    EXPECT_EQ(parse_attach_request(request).status().code(), StatusCode::kInvalidArgument);
    AttachReply no_offsets = sample_reply();
    no_offsets.result_offsets.clear();
    for (const std::size_t counts : {1, 2}) {  // of offsets, of tensors for the host
        auto reply = build_attach_reply(no_offsets);
        reply.resize(reply.size() - counts);
        ByteWriter(reply).write_varint(UINT64_MAX / 8);
        EXPECT_EQ(parse_attach_reply(reply).status().code(), StatusCode::kCorrupt);
    }
}

TEST(Message, Random_damage_is_refused_or_gives_values_in_range) {
    const auto seed = std::random_device{}();
    std::mt19937 random(seed);
    const auto good = build_attach_request(sample_request());
    for (int round = 0; round < 20'000; ++round) {
        auto bytes = good;
        for (unsigned hit = 0; hit < 1 + random() % 3; ++hit)
            bytes[4 + random() % (bytes.size() - 4)] = std::byte(random());
        const auto seen = parse_attach_request(bytes);
        ASSERT_TRUE(!seen.is_ok() || check_attach_request(*seen).is_ok()) << "seed " << seed;
    }
}

TEST(Message, Completion_text_is_cut_to_its_cell_and_ended) {
    Completion completion;
    completion.set_text(std::string(1000, 'a'));
    EXPECT_EQ(std::string_view(completion.text.data()), std::string(Completion::kTextBytes - 1, 'a'));
    completion.set_text("short");
    EXPECT_EQ(std::string_view(completion.text.data()), "short");
    completion.set_text({});
    EXPECT_EQ(completion.text[0], '\0');
}

}  // namespace
}  // namespace gradsieve::shm

// Requests for traces and their answers, against shm/trace_message.cpp.
#include "shm/trace_message.hpp"

#include "shm/local_socket.hpp"
#include "tests/shm/golden_bytes.hpp"

#include <gtest/gtest.h>

namespace gradsieve::shm {
namespace {

TraceRequest sample_request() {
    return {.number = 7, .job_name = "demo", .run_id = "7", .steps = 20, .timeout_ms = 60'000};
}
TraceReply sample_reply() {
    TraceReply reply;
    reply.number = 7;
    reply.node = "a";
    reply.codec = "all | f32";
    reply.groups = {"", "g"};
    reply.tensors = {{.name = "w", .group = 1, .elements = 300}};
    reply.ranks = {0, 2};
    reply.peers = {{.peer = 1, .name = "b"}};
    reply.begin_ns = 1000;
    reply.end_ns = 2000;
    reply.begin_unix_ns = 3000;
    reply.steps_ended = 1;
    reply.events = {{.kind = TraceEventKind::kEncoded,
                     .tensor = 0,
                     .who = 0,
                     .step = 4,
                     .time_ns = 1100,
                     .until_ns = 1200,
                     .number = 5}};
    return reply;
}

TEST(TraceMessage, Request_has_its_golden_bytes) {
    EXPECT_EQ(hex_of(build_trace_request(sample_request())),
              "04000000"
              "07"  // ABI version, message type
              "0700000000000000"
              "0464656d6f"
              "0137"  // number, job name, run id
              "14000000"
              "60ea0000");  // steps, timeout
}
TEST(TraceMessage, Reply_has_its_golden_bytes) {
    EXPECT_EQ(hex_of(build_trace_reply(sample_reply())),
              "04000000"
              "08"  // ABI version, message type
              "0700000000000000"
              "0000"
              "00"  // number, status code, text
              "0161"
              "09616c6c207c20663332"  // node, codec
              "02"
              "00"
              "0167"  // groups
              "01"
              "0177"
              "01"
              "ac02"  // tensors: name, group, elements
              "02"
              "00"
              "02"  // ranks
              "01"
              "01"
              "0162"  // nodes: place, name
              "e803000000000000"
              "d007000000000000"
              "b80b000000000000"  // begin, end, begin on the wall clock
              "01000000"
              "0000000000000000"  // steps ended, events lost
              "01"                // events
              "03"
              "00000000"
              "00000000"
              "0400000000000000"
              "4c04000000000000"
              "b004000000000000"
              "0500000000000000");  // kind, tensor, who, step, time, until, number
}
TEST(TraceMessage, Comes_back_as_it_was) {
    const auto request = parse_trace_request(build_trace_request(sample_request()));
    ASSERT_TRUE(request.is_ok()) << request.error().to_string();
    EXPECT_EQ(request->number, 7U);
    EXPECT_EQ(request->job_name, "demo");
    EXPECT_EQ(request->run_id, "7");
    EXPECT_EQ(request->steps, 20U);
    EXPECT_EQ(request->timeout_ms, 60'000U);
    const auto expected = sample_reply();
    const auto reply = parse_trace_reply(build_trace_reply(expected));
    ASSERT_TRUE(reply.is_ok()) << reply.error().to_string();
    EXPECT_EQ(reply->node, "a");
    EXPECT_EQ(reply->groups, expected.groups);
    EXPECT_EQ(reply->tensors, expected.tensors);
    EXPECT_EQ(reply->ranks, expected.ranks);
    EXPECT_EQ(reply->peers, expected.peers);
    EXPECT_EQ(reply->events, expected.events);
    EXPECT_EQ(reply->end_ns, 2000);
    EXPECT_EQ(reply->steps_ended, 1U);
}
TEST(TraceMessage, A_refusal_comes_back_with_its_words) {
    const auto reply = parse_trace_reply(build_trace_reply({.number = 1, .status = {StatusCode::kNotFound, "no"}}));
    ASSERT_TRUE(reply.is_ok());
    EXPECT_EQ(reply->status.to_string(), "not-found: no");
}
TEST(TraceMessage, Values_out_of_range_are_named) {
    const auto refusal = [](const auto& change) {
        auto request = sample_request();
        change(request);
        return parse_trace_request(build_trace_request(request)).status().to_string();
    };
    EXPECT_EQ(refusal([](auto& request) { request.steps = 0; }),
              "invalid-argument: trace request: steps 0: allowed is 1 to 10000; change it and ask again");
    EXPECT_EQ(refusal([](auto& request) { request.steps = 10'001; }),
              "invalid-argument: trace request: steps 10001: allowed is 1 to 10000; change it and ask again");
    EXPECT_EQ(refusal([](auto& request) { request.timeout_ms = 0; }),
              "invalid-argument: trace request: timeout 0 ms: allowed is 1 to 86400000 ms; change it and ask again");
    EXPECT_EQ(refusal([](auto& request) { request.job_name = ""; }),
              "invalid-argument: trace request: job name of 0 bytes: allowed is 1 to 512; change it and ask again");
    EXPECT_EQ(refusal([](auto& request) { request.run_id = "a\nb"; }),
              "invalid-argument: trace request: run id with unprintable bytes: allowed is printable UTF-8; change it "
              "and ask again");
}
TEST(TraceMessage, Cut_and_overlong_bytes_do_not_parse) {
    for (auto bytes : {build_trace_request(sample_request()), build_trace_reply(sample_reply())}) {
        const bool is_request = bytes[4] == std::byte{7};
        const auto status_of = [&](ByteView view) {
            return is_request ? parse_trace_request(view).status() : parse_trace_reply(view).status();
        };
        for (std::size_t length = 0; length < bytes.size(); ++length)
            EXPECT_EQ(status_of(ByteView(bytes).first(length)).code(), StatusCode::kCorrupt) << length;
        bytes.push_back(std::byte{0});
        EXPECT_EQ(status_of(bytes).code(), StatusCode::kCorrupt);
        bytes.pop_back();
        bytes[0] = std::byte{2};
        EXPECT_EQ(status_of(bytes).code(), StatusCode::kVersionMismatch);
    }
}
TEST(TraceMessage, Events_of_tensors_and_kinds_that_are_not_there_do_not_parse) {
    const auto code_with = [](const TraceEvent& event) {
        auto reply = sample_reply();
        reply.events = {event};
        return parse_trace_reply(build_trace_reply(reply)).status().code();
    };
    EXPECT_EQ(code_with({.kind = TraceEventKind::kHandIn, .tensor = 1}), StatusCode::kCorrupt);
    EXPECT_EQ(code_with({.kind = TraceEventKind::kStepCommitted, .tensor = 2}), StatusCode::kCorrupt);
    EXPECT_EQ(code_with({.kind = TraceEventKind::kStepCommitted, .tensor = 1}), StatusCode::kOk);
    EXPECT_EQ(code_with({.kind = TraceEventKind::kFrameSent, .tensor = 9}), StatusCode::kOk);
    EXPECT_EQ(code_with({.kind = static_cast<TraceEventKind>(0)}), StatusCode::kCorrupt);
    EXPECT_EQ(code_with({.kind = static_cast<TraceEventKind>(13)}), StatusCode::kCorrupt);
    auto reply = sample_reply();
    reply.tensors[0].group = 2;
    EXPECT_EQ(parse_trace_reply(build_trace_reply(reply)).status().code(), StatusCode::kCorrupt);
}
TEST(TraceMessage, The_longest_trace_fits_into_a_message) {
    auto reply = sample_reply();
    reply.events.assign(kTraceEventLimit, reply.events.front());
    const auto bytes = build_trace_reply(reply);
    EXPECT_LT(bytes.size(), kLocalMessageLimitBytes - kTensorLimit * (kNameLimitBytes / 8));
    EXPECT_TRUE(parse_trace_reply(bytes).is_ok());
    reply.events.push_back(reply.events.front());
    EXPECT_EQ(parse_trace_reply(build_trace_reply(reply)).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace gradsieve::shm

// Traces asked for over the conductor's socket.
#include "tests/daemon/conductor_node.hpp"

namespace gradsieve::daemon::test {
namespace {

using namespace std::chrono_literals;
using shm::CompletionKind;
using ::testing::HasSubstr;

TEST(ConductorTrace, Trace_requests_are_answered_over_the_socket) {
    Node node;
    auto caller = node.attach(make_request(0, 1, one_tensor()));
    ASSERT_TRUE(caller.client) << caller.refusal.to_string();
    ASSERT_TRUE(node.turn_until([&] { return caller.client->has(CompletionKind::kStarted, 1); }));
    auto tool = shm::LocalConnection::connect(node.socket(), shm::soon()).value();
    const auto ask = [&](const Bytes& bytes) {
        EXPECT_TRUE(tool.send(bytes, {}).is_ok());
        Result<shm::LocalMessage> message = Status(StatusCode::kTimeout, "");
        EXPECT_TRUE(node.turn_until([&] {
            message = tool.receive(shm::past());
            return message.is_ok() || message.error().code() != StatusCode::kTimeout;
        }));
        return shm::parse_trace_reply(message.value().bytes).value();
    };
    auto bytes = shm::build_trace_request({.number = 3, .job_name = "no", .run_id = "one", .steps = 2});
    auto reply = ask(bytes);
    EXPECT_EQ(reply.number, 3U);
    EXPECT_EQ(reply.status.code(), StatusCode::kNotFound);
    EXPECT_THAT(reply.status.text(), HasSubstr("job 'no', run 'one': it does not run here"));
    bytes.pop_back();
    reply = ask(bytes);
    EXPECT_EQ(reply.number, 0U);
    EXPECT_EQ(reply.status.code(), StatusCode::kCorrupt);
    EXPECT_TRUE(tool.send(shm::build_trace_request(
                              {.number = 4, .job_name = "demo", .run_id = "one", .steps = 1, .timeout_ms = 60'000}),
                          {})
                    .is_ok());
    ASSERT_TRUE(node.turn_until([&] { return node.log.has("a trace of 1 steps begins"); }));
    caller.client->submit(0, 1, {1, 2, 3, 4});
    Result<shm::LocalMessage> message = Status(StatusCode::kTimeout, "");
    ASSERT_TRUE(node.turn_until([&] {
        message = tool.receive(shm::past());
        return message.is_ok();
    }));
    reply = shm::parse_trace_reply(message->bytes).value();
    EXPECT_EQ(reply.number, 4U);
    EXPECT_TRUE(reply.status.is_ok()) << reply.status.to_string();
    EXPECT_EQ(reply.steps_ended, 1U);
    EXPECT_EQ(reply.events.size(), 7U) << "no peers: 5 of the tensor, a hand-in, the step's end";
}
TEST(ConductorTrace, A_tool_that_goes_takes_its_trace_with_it) {
    Node node;
    auto caller = node.attach(make_request(0, 1, one_tensor()));
    ASSERT_TRUE(node.turn_until([&] { return caller.client->has(CompletionKind::kStarted, 1); }));
    {
        auto tool = shm::LocalConnection::connect(node.socket(), shm::soon()).value();
        EXPECT_TRUE(
            tool.send(shm::build_trace_request({.number = 4, .job_name = "demo", .run_id = "one", .steps = 1}), {})
                .is_ok());
        ASSERT_TRUE(node.turn_until([&] { return node.log.has("a trace of 1 steps begins"); }));
    }
    ASSERT_TRUE(node.turn_until([&] {
        node.ahead += 1s;  // sessions that are gone are looked for now and then
        return node.log.has("the trace is given up: who asked for it is gone");
    }));
}

}  // namespace
}  // namespace gradsieve::daemon::test

// A trace asked of a job: what it records of real steps on one node and on two, and how it ends.
#include "daemon/hosted_job.hpp"

#include "tests/daemon/job_host.hpp"

#include <set>

namespace gradsieve::daemon::test {
namespace {

using namespace std::chrono_literals;
using shm::CompletionKind;
using shm::TraceEventKind;
using ::testing::HasSubstr;

std::size_t count(const shm::TraceReply& reply, TraceEventKind kind, Step step) {
    return static_cast<std::size_t>(std::ranges::count_if(
        reply.events, [&](const auto& event) { return event.kind == kind && event.step == step; }));
}
shm::TraceRequest ask(std::uint32_t steps, std::uint32_t timeout_ms = 60'000) {
    return {.number = 9, .job_name = "demo", .run_id = "one", .steps = steps, .timeout_ms = timeout_ms};
}

class HostedJobTrace : public ::testing::Test {
protected:
    HostedJobTrace() : hosts{&first, &second} {}
    void start() {
        for (Rank rank = 0; rank < 2; ++rank) hosts[rank]->attach(make_request(rank, 2, two_tensors()));
        for (Rank rank = 0; rank < 2; ++rank)
            ASSERT_TRUE(wait_for(hosts, *hosts[rank]->ranks[0], CompletionKind::kStarted, 1));
    }
    void step(Step number, bool is_late = false) {
        for (std::size_t node = 0; node < (is_late ? 1U : 2U); ++node)
            for (const std::uint32_t tensor : {0U, 1U})
                hosts[node]->ranks[0]->client->submit(tensor, number, std::vector<float>(tensor == 0 ? 6 : 2, 1.0F));
        if (is_late) return;
        for (auto* host : hosts) ASSERT_TRUE(wait_for(hosts, *host->ranks[0], CompletionKind::kStepDone, number));
    }
    bool turn_until_answered() {
        return wait_until([&] {
            for (auto* host : hosts) host->turn();
            return !first.traces.empty();
        });
    }

    PipeNetwork network{2};
    Host first{&network, 0}, second{&network, 1};
    std::vector<Host*> hosts;
};

TEST_F(HostedJobTrace, Every_phase_of_every_tensor_and_step_is_recorded_in_order) {
    start();
    step(1);
    first.job->on_trace_request(42, ask(2), Host::now());
    for (Step number = 2; number <= 4; ++number) step(number);
    ASSERT_TRUE(turn_until_answered());
    const auto& [session, reply] = first.traces.front();
    EXPECT_EQ(session, 42U);
    EXPECT_EQ(reply.number, 9U);
    EXPECT_TRUE(reply.status.is_ok()) << reply.status.to_string();
    EXPECT_EQ(reply.node, "a");
    EXPECT_EQ(reply.steps_ended, 2U);
    EXPECT_EQ(reply.events_lost, 0U);
    ASSERT_EQ(reply.tensors.size(), 2U);
    EXPECT_EQ(reply.tensors[0].name, "b");
    ASSERT_EQ(reply.peers.size(), 1U);
    EXPECT_EQ(reply.peers[0].name, "b");
    EXPECT_EQ(reply.ranks, (std::vector<Rank>{0}));
    for (const Step number : {1U, 4U})
        EXPECT_TRUE(std::ranges::none_of(reply.events, [&](const auto& event) { return event.step == number; }));
    for (const Step number : {2U, 3U}) {
        for (const auto kind : {TraceEventKind::kHandIn, TraceEventKind::kEncodeAsked, TraceEventKind::kEncoded,
                                TraceEventKind::kFirstRecord, TraceEventKind::kLastRecord, TraceEventKind::kDecodeAsked,
                                TraceEventKind::kDecoded, TraceEventKind::kHandedBack})
            EXPECT_EQ(count(reply, kind, number), 2U) << static_cast<int>(kind) << " of step " << number;
        EXPECT_GE(count(reply, TraceEventKind::kRecordsOut, number), 2U);
        EXPECT_EQ(count(reply, TraceEventKind::kStepCommitted, number), 1U);
    }
    std::set<std::uint64_t> made;
    std::set<std::uint64_t> sent;
    for (const auto& event : reply.events) {
        EXPECT_GE(event.time_ns, reply.begin_ns);
        EXPECT_LE(event.time_ns, reply.end_ns);
        if (event.until_ns != 0) {
            EXPECT_GE(event.until_ns, event.time_ns);
        }
        if (event.kind == TraceEventKind::kRecordsOut) made.insert(event.number);
        if (event.kind == TraceEventKind::kFrameSent) sent.insert(event.number);
    }
    EXPECT_EQ(made, sent);
    EXPECT_FALSE(made.empty());
    EXPECT_TRUE(shm::parse_trace_reply(shm::build_trace_reply(reply)).is_ok());
    EXPECT_TRUE(first.log.has("a trace of 2 steps begins"));
    EXPECT_TRUE(first.log.has("the trace ends with 2 steps"));
}
TEST_F(HostedJobTrace, Memory_of_a_trace_counts_against_the_budget_until_its_end) {
    start();
    const auto before = first.budget.used_bytes;
    first.job->on_trace_request(42, ask(1), Host::now());
    EXPECT_GT(first.budget.used_bytes, before);
    step(1);
    ASSERT_TRUE(turn_until_answered());
    EXPECT_EQ(first.budget.used_bytes, before);
    first.budget.limit_bytes = first.budget.used_bytes + 10;
    first.job->on_trace_request(42, ask(1), Host::now());
    ASSERT_EQ(first.traces.size(), 2U);
    EXPECT_EQ(first.traces[1].second.status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(first.traces[1].second.status.text(), HasSubstr("the trace needs"));
}
TEST_F(HostedJobTrace, A_second_one_at_a_time_is_refused) {
    start();
    first.job->on_trace_request(42, ask(1), Host::now());
    first.job->on_trace_request(43, ask(1), Host::now());
    ASSERT_EQ(first.traces.size(), 1U);
    EXPECT_EQ(first.traces[0].first, 43U);
    EXPECT_EQ(first.traces[0].second.status.code(), StatusCode::kBusy);
    first.job->drop_trace(43);
    step(1);
    ASSERT_TRUE(wait_until([&] {
        for (auto* host : hosts) host->turn();
        return first.traces.size() == 2;
    })) << "another session's end changes nothing";
    EXPECT_EQ(first.traces[1].first, 42U);
}
TEST_F(HostedJobTrace, Ends_with_its_session) {
    start();
    const auto before = first.budget.used_bytes;
    first.job->on_trace_request(42, ask(1), Host::now());
    first.job->drop_trace(42);
    EXPECT_EQ(first.budget.used_bytes, before);
    step(1);
    EXPECT_TRUE(first.traces.empty());
}
TEST_F(HostedJobTrace, A_job_that_does_not_run_is_refused) {
    first.attach(make_request(0, 2, two_tensors()));
    first.turn();
    first.job->on_trace_request(42, ask(1), Host::now());
    ASSERT_EQ(first.traces.size(), 1U);
    EXPECT_EQ(first.traces[0].second.status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(first.traces[0].second.status.text(), HasSubstr("job 'demo' does not run"));
}
TEST_F(HostedJobTrace, At_its_deadline_it_says_what_is_waited_for_and_gives_what_there_is) {
    start();
    first.job->on_trace_request(42, ask(2, 1), Host::now() + 1h);
    step(1);
    step(2, /*is_late=*/true);
    for (int turn = 0; turn < 3; ++turn) first.turn();
    EXPECT_TRUE(first.traces.empty()) << "its deadline is an hour ahead";
    first.job->run(Host::now() + 2h);
    ASSERT_EQ(first.traces.size(), 1U);
    const auto& reply = first.traces[0].second;
    EXPECT_EQ(reply.status.code(), StatusCode::kTimeout);
    EXPECT_EQ(reply.status.text(),
              "job 'demo': 1 of 2 steps ended within 1 ms; step 2 of group '' waits for payloads of b: look at "
              "gradsieve status, or wait longer with --timeout");
    EXPECT_EQ(count(reply, TraceEventKind::kHandIn, 2), 2U);
    EXPECT_EQ(count(reply, TraceEventKind::kDecoded, 2), 0U);
}
TEST_F(HostedJobTrace, Ends_with_the_job) {
    start();
    first.job->on_trace_request(42, ask(2), Host::now());
    step(1);
    for (auto* host : hosts) host->ranks[0]->client->detach();
    ASSERT_TRUE(turn_until_answered());
    EXPECT_EQ(first.traces[0].second.status.text(), "job 'demo' ended after 1 of 2 steps: its ranks have detached");
    EXPECT_EQ(count(first.traces[0].second, TraceEventKind::kDecoded, 1), 2U);
}
TEST_F(HostedJobTrace, A_failed_step_counts_and_is_told) {
    start();
    first.job->on_trace_request(42, ask(1), Host::now());
    first.ranks[0]->client->submit(0, 1, std::vector<float>(6, std::numeric_limits<float>::quiet_NaN()));
    first.ranks[0]->client->submit(1, 1, {1, 1});
    second.ranks[0]->client->submit(0, 1, std::vector<float>(6, 1.0F));
    second.ranks[0]->client->submit(1, 1, {1, 1});
    ASSERT_TRUE(turn_until_answered());
    const auto& reply = first.traces[0].second;
    EXPECT_TRUE(reply.status.is_ok());
    EXPECT_EQ(count(reply, TraceEventKind::kStepFailed, 1), 1U);
    EXPECT_EQ(count(reply, TraceEventKind::kHandedBack, 1), 2U);
}

}  // namespace
}  // namespace gradsieve::daemon::test

// The conductor turned by hand: clients over its real Unix socket, peers over an in-process network, time as the test
// wants it. What it does is read where anybody would: on the socket, in shared memory and in the status page.
#include "daemon/conductor.hpp"

#include "tests/daemon/conductor_node.hpp"

#include <limits>

namespace gradsieve::daemon::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using shm::CompletionKind;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text_of(const shm::Completion* completion) {
    return completion == nullptr ? "none"
                                 : std::string(status_code_name(completion->code)) + ": " + completion->text.data();
}

TEST(Conductor, Job_runs_over_the_socket_and_the_page_follows_it) {
    Node node;
    auto first = node.attach(make_request(0, 2, one_tensor()));
    ASSERT_TRUE(first.client) << first.refusal.to_string();
    auto job = node.status().at("jobs").at(0);
    EXPECT_EQ(job.at("phase"), "forming");
    EXPECT_EQ(job.at("missing_ranks"), json::parse("[1]"));
    auto second = node.attach(make_request(1, 2, one_tensor()));
    ASSERT_TRUE(second.client) << second.refusal.to_string();
    ASSERT_TRUE(node.turn_until([&] { return first.client->has(CompletionKind::kStarted, 1); }));
    for (Step step = 1; step <= 3; ++step) {
        first.client->submit(0, step, {1, 2, 3, 4});
        second.client->submit(0, step, {3, 4, 5, 6});
        ASSERT_TRUE(node.turn_until([&] {
            return first.client->has(CompletionKind::kTensor, step) &&
                   second.client->has(CompletionKind::kTensor, step);
        }));
        EXPECT_EQ(first.client->result(0), (std::vector<float>{2, 3, 4, 5}));
    }
    job = node.status().at("jobs").at(0);
    EXPECT_EQ(job.at("phase"), "running");
    EXPECT_EQ(job.at("groups")[0].at("committed_step"), 3);
    EXPECT_EQ(job.at("ranks")[1].at("pid"), ::getpid());
    first.client->detach();
    second.client->detach();
    ASSERT_TRUE(node.turn_until([&] { return second.client->last(CompletionKind::kJobEnded) != nullptr; }));
    EXPECT_EQ(text_of(first.client->last(CompletionKind::kJobEnded)), "ok: ");
    const auto document = node.status();
    EXPECT_EQ(document.at("jobs"), json::array());
    EXPECT_EQ(document.at("ended_jobs").at(0).at("steps_committed"), 3);
}
TEST(Conductor, Hand_in_for_a_step_that_failed_elsewhere_is_refused_behind_the_steps_end) {
    PipeNetwork network(2);
    Node first(&network, 0);
    Node second(&network, 1);
    auto bad = first.attach(make_request(0, 2, one_tensor()));
    auto good = second.attach(make_request(1, 2, one_tensor()));
    ASSERT_TRUE(bad.client && good.client);
    ASSERT_TRUE(first.turn_until([&] {
        second.turn();
        return bad.client->has(CompletionKind::kStarted, 1) && good.client->has(CompletionKind::kStarted, 1);
    }));
    bad.client->submit(0, 1, {1, std::numeric_limits<float>::quiet_NaN(), 3, 4});
    ASSERT_TRUE(first.turn_until([&] { return bad.client->has(CompletionKind::kTensor, 1); }));
    // Both are at hand when the second conductor looks: the other node's word, and a hand-in that does not know of it.
    ASSERT_TRUE(wait_until([&] { return second.conductor->network()->has_inbox(); }));
    good.client->submit(0, 1, {1, 2, 3, 4});
    ASSERT_TRUE(second.turn_until([&] { return good.client->has(CompletionKind::kTensor, 1); }));
    std::vector<CompletionKind> kinds;
    for (const auto& completion : good.client->completions())
        if (completion.step == 1 && completion.kind != CompletionKind::kStarted) kinds.push_back(completion.kind);
    ASSERT_GE(kinds.size(), 2U);
    EXPECT_EQ(kinds.front(), CompletionKind::kStepDone) << "who has all answers of a step may hand in the next one";
}
TEST(Conductor, Memory_of_a_job_is_given_back_when_its_processes_are_gone) {
    Node node;
    {
        auto caller = node.attach(make_request(0, 1, one_tensor()));
        ASSERT_TRUE(caller.client) << caller.refusal.to_string();
        EXPECT_GT(node.status().at("daemon").at("memory_bytes").get<std::uint64_t>(), 0U);
        caller.client->detach();
        node.turn();
    }
    node.ahead += 1s;
    EXPECT_TRUE(node.turn_until([&] { return node.status().at("daemon").at("memory_bytes") == 0; }));
    EXPECT_TRUE(node.conductor->has_jobs()) << "it still answers peers that missed the end";
    node.ahead += 6s;
    node.turn();
    EXPECT_FALSE(node.conductor->has_jobs());
}
TEST(Conductor, Client_that_closes_without_a_word_ends_its_job_for_the_others) {
    Node node;
    auto first = node.attach(make_request(0, 2, one_tensor()));
    {
        auto second = node.attach(make_request(1, 2, one_tensor()));
        ASSERT_TRUE(node.turn_until([&] { return first.client->has(CompletionKind::kStarted, 1); }));
    }
    ASSERT_TRUE(node.turn_until([&] { return first.client->last(CompletionKind::kJobEnded) != nullptr; }));
    EXPECT_THAT(text_of(first.client->last(CompletionKind::kJobEnded)),
                AllOf(HasSubstr("peer-failed: rank 1"), HasSubstr("closed the connection without detaching")));
    const auto document = node.status();
    EXPECT_THAT(document.at("ended_jobs").at(0).at("text").get<std::string>(), HasSubstr("peer-failed: rank 1"));
    EXPECT_THAT(document.at("daemon").at("errors").at(0).at("text").get<std::string>(), HasSubstr("job demo: rank 1"));
}
TEST(Conductor, Next_life_of_a_job_begins_beside_the_last_one) {
    Node node;
    auto old = node.attach(make_request(0, 1, one_tensor()));
    old.client->detach();
    ASSERT_TRUE(node.turn_until([&] { return old.client->last(CompletionKind::kJobEnded) != nullptr; }));
    auto fresh = node.attach(make_request(0, 1, one_tensor()));  // the old process is still there
    ASSERT_TRUE(fresh.client) << fresh.refusal.to_string();
    ASSERT_TRUE(node.turn_until([&] { return fresh.client->has(CompletionKind::kStarted, 1); }));
    fresh.client->submit(0, 1, {4, 3, 2, 1});
    ASSERT_TRUE(node.turn_until([&] { return fresh.client->has(CompletionKind::kTensor, 1); }));
    EXPECT_EQ(fresh.client->result(0), (std::vector<float>{4, 3, 2, 1}));
}
/// Steps `first` to `last` of a single rank; the averages, one after another.
std::vector<float> train(Node& node, Caller& caller, Step first, Step last) {
    std::vector<float> all;
    for (Step step = first; step <= last; ++step) {
        const auto number = static_cast<float>(step);
        caller.client->submit(0, step, {number, 1 / number, -0.3F * number, 0.1F});
        EXPECT_TRUE(node.turn_until([&] { return caller.client->has(CompletionKind::kTensor, step); }));
        for (const auto value : caller.client->result(0)) all.push_back(value);
    }
    return all;
}
TEST(Conductor, Job_whose_process_died_goes_on_with_its_state_and_gives_the_bits_of_one_that_did_not_die) {
    const auto request = make_request(0, 1, one_tensor(), "topk(0.25) | pow2(bits=4)");
    Node undisturbed;
    auto whole = undisturbed.attach(request);
    const auto expected = train(undisturbed, whole, 1, 9);
    Node node;
    std::vector<float> seen;
    {
        auto caller = node.attach(request);
        seen = train(node, caller, 1, 5);
    }
    ASSERT_TRUE(node.turn_until([&] { return node.status().at("states").at("kept").size() == 1; }));
    const auto kept = node.page().at("states").at("kept").at(0);
    EXPECT_EQ(kept.at("groups")[0].at("committed_step"), 5);
    EXPECT_EQ(kept.at("bytes"), node.page().at("daemon").at("memory_bytes"));
    auto again = node.attach(request);
    ASSERT_TRUE(again.client) << again.refusal.to_string();
    ASSERT_TRUE(node.turn_until([&] { return again.client->has(CompletionKind::kStarted, 6); }));
    for (const auto value : train(node, again, 6, 9)) seen.push_back(value);
    EXPECT_EQ(seen, expected);
    EXPECT_EQ(node.status().at("jobs")[0].at("groups")[0].at("resumed_step"), 5);
    again.client->detach();
    node.turn();
    again.client.reset();
    again.connection = {};
    EXPECT_TRUE(node.turn_until([&] { return node.status().at("daemon").at("memory_bytes") == 0; }))
        << "all ranks detached: nothing is kept";
    EXPECT_TRUE(node.page().at("states").at("kept").empty());
    EXPECT_TRUE(node.page().at("states").at("lost").empty()) << "and nothing was lost";
}
TEST(Conductor, State_of_a_job_that_all_ranks_left_with_a_step_open_is_kept) {
    Node node;
    const auto request = [](Rank rank) { return make_request(rank, 2, one_tensor(), "topk(0.25) | pow2(bits=4)"); };
    {
        auto first = node.attach(request(0));
        auto second = node.attach(request(1));
        ASSERT_TRUE(node.turn_until([&] { return second.client->has(CompletionKind::kStarted, 1); }));
        for (auto* caller : {&first, &second}) caller->client->submit(0, 1, {4, 3, 2, 1});
        ASSERT_TRUE(node.turn_until([&] { return first.client->has(CompletionKind::kTensor, 1); }));
        first.client->submit(0, 2, {1, 2, 3, 4});  // the other one is late, and both give up
        node.turn();
        for (auto* caller : {&first, &second}) caller->client->detach();
        ASSERT_TRUE(node.turn_until([&] { return first.client->last(CompletionKind::kJobEnded) != nullptr; }));
    }
    ASSERT_TRUE(node.turn_until([&] { return node.status().at("states").at("kept").size() == 1; }));
    EXPECT_EQ(node.page().at("states").at("kept")[0].at("groups")[0].at("committed_step"), 1);
    EXPECT_TRUE(node.log.has("info job ended: all ranks detached with step 2 open: its state is kept JOB=demo"));
    auto first = node.attach(request(0));
    auto second = node.attach(request(1));
    ASSERT_TRUE(node.turn_until([&] { return second.client->has(CompletionKind::kStarted, 2); }));
}
TEST(Conductor, State_that_nobody_takes_in_time_is_given_up) {
    Node node;
    {
        auto caller = node.attach(make_request(0, 1, one_tensor(), "topk(0.25) | pow2(bits=4)"));
        train(node, caller, 1, 2);
    }
    ASSERT_TRUE(node.turn_until([&] { return node.status().at("states").at("kept").size() == 1; }));
    node.ahead += 61min;
    const auto document = node.status();
    EXPECT_TRUE(document.at("states").at("kept").empty());
    EXPECT_THAT(document.at("states").at("lost")[0].at("text").get<std::string>(), HasSubstr("within 60 minutes"));
    EXPECT_EQ(document.at("daemon").at("memory_bytes"), 0);
}
TEST(Conductor, Second_live_run_of_a_name_is_refused_with_its_holder) {
    Node node;
    auto first = node.attach(make_request(0, 1, one_tensor()));
    auto other = make_request(0, 1, one_tensor());
    other.run_id = "two";
    const auto second = node.attach(other);
    EXPECT_EQ(second.refusal.code(), StatusCode::kAlreadyExists);
    EXPECT_THAT(second.refusal.text(),
                AllOf(HasSubstr("job 'demo' already runs here with run id 'one'"),
                      HasSubstr("pid " + std::to_string(::getpid())), HasSubstr("run id 'two'")));
    EXPECT_TRUE(node.log.has("warning attach refused: job 'demo' already runs here"));
}
TEST(Conductor, Nonsense_from_a_caller_is_refused_and_the_next_one_served) {
    Node node;
    const auto bad = node.call(Bytes(100, std::byte{0xA5}), {});
    EXPECT_FALSE(bad.refusal.is_ok());
    EXPECT_FALSE(bad.client);
    const auto version = [] {
        auto request = make_request(0, 1, one_tensor());
        request.abi_version = shm::kAbiVersion + 1;
        return shm::build_attach_request(request);
    };
    EXPECT_EQ(node.call(version(), {}).refusal.code(), StatusCode::kVersionMismatch);
    EXPECT_TRUE(node.attach(make_request(0, 1, one_tensor())).client);
}
TEST(Conductor, Tensor_on_a_device_is_refused_where_there_is_none) {
    if (codec::cuda::list_devices().is_ok()) GTEST_SKIP() << "this host has a GPU";
    Node node;
    auto tensors = one_tensor();
    tensors.front().on_device = true;
    const auto caller = node.attach(make_request(0, 1, tensors));
    EXPECT_THAT(caller.refusal.text(), AllOf(HasSubstr("is on a device"), HasSubstr("GPU")));
    EXPECT_TRUE(node.status().at("jobs").empty());
}
TEST(Conductor, Second_message_that_binds_nothing_ends_the_session) {
    Node node;
    auto caller = node.attach(make_request(0, 2, one_tensor()));
    ASSERT_TRUE(caller.connection.send(shm::build_attach_request(make_request(1, 2, one_tensor())), {}).is_ok());
    ASSERT_TRUE(node.turn_until([&] { return node.log.has("sent what is no bind request"); }));
    EXPECT_TRUE(node.log.has("rank 0 is gone"));
}
TEST(Conductor, Two_nodes_average_and_share_out_what_was_sent) {
    PipeNetwork network(2);
    Node a(&network, 0);
    Node b(&network, 1);
    const std::vector<shm::TensorEntry> tensors{{.name = "w", .shape = {1000}}};
    auto here = a.attach(make_request(0, 2, tensors));
    auto there = b.attach(make_request(1, 2, tensors));
    const auto both_until = [&](const std::function<bool()>& condition) {
        return a.turn_until([&] {
            b.turn();
            return condition();
        });
    };
    ASSERT_TRUE(both_until([&] {
        return here.client->has(CompletionKind::kStarted, 1) && there.client->has(CompletionKind::kStarted, 1);
    }));
    for (Step step = 1; step <= 5; ++step) {
        here.client->submit(0, step, std::vector<float>(1000, 1.0F));
        there.client->submit(0, step, std::vector<float>(1000, 2.0F));
        ASSERT_TRUE(both_until([&] {
            return here.client->has(CompletionKind::kTensor, step) && there.client->has(CompletionKind::kTensor, step);
        }));
        EXPECT_EQ(here.client->result(0), std::vector<float>(1000, 1.5F));
        EXPECT_EQ(there.client->result(0), here.client->result(0));
    }
    here.client->detach();
    there.client->detach();
    ASSERT_TRUE(both_until([&] { return a.status().at("ended_jobs").size() == 1; }));
    const auto ended = a.page().at("ended_jobs").at(0);
    const auto sent = ended.at("bytes_sent").get<double>();
    EXPECT_EQ(sent, a.page().at("peers").at(1).at("bytes_sent").get<double>()) << "the only job has sent it all";
    EXPECT_GT(sent, 5 * 4000.0);
    EXPECT_NEAR(ended.at("wire_ratio").get<double>(), 5 * 4000.0 / sent, 0.1);
}
TEST(Conductor, Lost_peer_is_named_in_the_same_turn) {
    PipeNetwork network(2);
    Node a(&network, 0);
    ASSERT_TRUE(a.turn_until([&] { return a.page().at("peers").at(1).at("state") == "up"; }));
    network.tell(0, {1, transport::PeerState::kClosed, 101, "connection closed by 192.0.2.2:7077"});
    // The test's clock stands: what is published now is not published because its time has come.
    const auto still = a.now();
    ASSERT_TRUE(wait_until([&] {
        a.conductor->run_once(still);
        return a.log.has("warning b is closed: connection closed by 192.0.2.2:7077 PEER=b");
    }));
    const auto peer = a.page().at("peers").at(1);
    EXPECT_EQ(peer.at("state"), "closed");
    EXPECT_EQ(peer.at("state_s"), 0.0);
    EXPECT_EQ(peer.at("text"), "connection closed by 192.0.2.2:7077");
}
TEST(Conductor, Tick_moves_with_every_turn_and_reaches_the_peers) {
    PipeNetwork network(2);
    Node a(&network, 0);
    const auto before = a.conductor->tick();
    for (int round = 0; round < 10; ++round) a.conductor->run_once(a.now());
    EXPECT_EQ(a.conductor->tick(), before + 10);
    EXPECT_TRUE(wait_until([&] { return network.tick_of(0) == a.conductor->tick(); }));
}
TEST(Conductor, Frames_that_belong_to_no_job_do_no_harm) {
    PipeNetwork network(2);
    Node a(&network, 0);
    for (std::uint16_t type = 0; type < 64; ++type)
        for (const std::size_t bytes : {0U, 7U, 8U, 100U})
            network.deliver(0, {1, {type, 3, 4}, SharedView::take(Bytes(bytes, std::byte{0x5A}))});
    ASSERT_TRUE(a.turn_until([&] { return a.conductor->network()->counters()[1].frames_received == 256; }));
    auto caller = a.attach(make_request(0, 1, one_tensor()));
    ASSERT_TRUE(caller.client) << caller.refusal.to_string();
    ASSERT_TRUE(a.turn_until([&] { return caller.client->has(CompletionKind::kStarted, 1); }));
}
TEST(Conductor, Stop_tells_open_jobs_why_and_takes_nobody_new) {
    Node node;
    auto caller = node.attach(make_request(0, 1, one_tensor()));
    ASSERT_TRUE(node.turn_until([&] { return caller.client->has(CompletionKind::kStarted, 1); }));
    node.conductor->begin_stop(node.now());
    ASSERT_TRUE(node.turn_until([&] { return node.conductor->is_drained(); }));
    EXPECT_THAT(text_of(caller.client->last(CompletionKind::kJobEnded)), HasSubstr("stopping"));
    auto late = shm::LocalConnection::connect(node.socket(), shm::soon()).value();
    ASSERT_TRUE(late.send(shm::build_attach_request(make_request(0, 1, one_tensor())), {}).is_ok());
    node.turn();
    EXPECT_EQ(late.receive(shm::past()).status().code(), StatusCode::kTimeout);
    EXPECT_EQ(node.status().at("daemon").at("state"), "stopping");
}
TEST(Conductor, Limits_change_for_the_next_job_and_the_running_one_stays) {
    Node node;
    auto running = node.attach(make_request(0, 1, one_tensor()));
    auto config = node.conductor->config();
    config.memory_limit_bytes = ByteCount{1} << 20U;
    node.conductor->apply_limits(config);
    EXPECT_EQ(node.status().at("daemon").at("memory_limit_bytes"), 1U << 20U);
    auto large = make_request(0, 1, {{.name = "w", .shape = {1U << 20U}}});
    large.job_name = "large";
    EXPECT_EQ(node.attach(large).refusal.code(), StatusCode::kResourceExhausted);
    running.client->submit(0, 1, {1, 2, 3, 4});
    EXPECT_TRUE(node.turn_until([&] { return running.client->has(CompletionKind::kTensor, 1); }));
}
TEST(Conductor, Another_list_of_nodes_brings_its_own_peers) {
    PipeNetwork network(2);
    Node node;
    EXPECT_EQ(node.status().at("peers"), json::array());
    auto config = node.conductor->config();
    config.nodes = {{"a", "192.0.2.1"}, {"moved", "192.0.2.9"}};
    LogLines lines;
    auto doorbell = shm::Doorbell::make().value();
    WakeFlag wake(doorbell.fd());
    node.conductor->set_nodes(config, std::make_unique<NetworkThread>(network.make_endpoint(0), wake, lines.log()));
    ASSERT_TRUE(node.turn_until([&] {
        const auto peers = node.page().at("peers");
        return peers.size() == 2 && peers[1].at("state") == "up";
    }));
    EXPECT_EQ(node.page().at("peers").at(1).at("name"), "moved");
    node.conductor.reset();  // before the wake flag of its network
}

}  // namespace
}  // namespace gradsieve::daemon::test

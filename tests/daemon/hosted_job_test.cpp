#include "daemon/hosted_job.hpp"

#include "tests/daemon/job_host.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace gradsieve::daemon::test {
namespace {

using shm::CompletionKind;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HostedJob, Two_ranks_get_the_mean_and_the_step_is_settled_before_its_last_tensor) {
    Host host;
    auto& first = host.attach(make_request(0, 2, two_tensors()));
    auto tensors = two_tensors();
    std::swap(tensors[0], tensors[1]);  // the other rank registered them in another order
    auto& second = host.attach(make_request(1, 2, tensors));
    host.turn();
    ASSERT_TRUE(first.client->has(CompletionKind::kStarted, 1));
    first.client->submit(0, 1, {1, 2, 3, 4, 5, 6});
    second.client->submit(0, 1, {10, 20});
    host.turn();
    EXPECT_FALSE(first.client->has(CompletionKind::kTensor, 1)) << "neither tensor is whole";
    second.client->submit(1, 1, {3, 2, 1, 0, -1, -2.5F});
    first.client->submit(1, 1, {0, 1});
    host.turn();
    EXPECT_EQ(first.client->result(0), (std::vector<float>{2, 2, 2, 2, 2, 1.75F}));
    EXPECT_EQ(first.client->result(1), (std::vector<float>{5, 10.5F}));
    EXPECT_EQ(second.client->result(1), first.client->result(0));
    EXPECT_EQ(second.client->result(0), first.client->result(1));
    const auto& said = first.client->completions();
    ASSERT_EQ(said.size(), 4U) << "started, a tensor, step done, a tensor";
    EXPECT_EQ(said[2].kind, CompletionKind::kStepDone);
    EXPECT_EQ(said[3].kind, CompletionKind::kTensor);
    EXPECT_EQ(host.job->groups()[0].committed, 1U);
    EXPECT_TRUE(host.log.has("info job runs: 2 ranks on 1 nodes, codec all | f32 | auto (client) JOB=demo"));
}
TEST(HostedJob, Large_tensor_goes_through_a_codec_thread) {
    Host host;
    constexpr std::size_t kElements = 200'000;
    auto& rank = host.attach(make_request(0, 1, {{.name = "w", .shape = {kElements}}}));
    host.turn();
    std::vector<float> values(kElements);
    std::mt19937 random(5);
    for (auto& value : values) value = std::normal_distribution<float>()(random);
    rank.client->submit(0, 1, values);
    ASSERT_TRUE(wait_for({&host}, rank, CompletionKind::kTensor, 1));
    EXPECT_EQ(rank.client->result(0), values);
    EXPECT_EQ(host.tasks_from_pool, 2U) << "encode and decode";
}
TEST(HostedJob, Attach_that_does_not_fit_is_refused_with_the_reason) {
    Host host;
    host.attach(make_request(0, 3, two_tensors()), 1234);
    const auto refusal = [&](const shm::AttachRequest& request, uid_t uid = 1000) {
        MemoryRank rank(request);
        rank.session.who.uid = uid;
        return rank.attach(*host.job, Host::now()).to_string();
    };
    EXPECT_THAT(refusal(make_request(0, 3, two_tensors())),
                AllOf(HasSubstr("already-exists: rank 0 of job 'demo' is held by pid 1234 of alice"),
                      HasSubstr("give each process its own rank")));
    EXPECT_THAT(refusal(make_request(1, 3, two_tensors(), "all | bf16")),
                AllOf(HasSubstr("mismatch: "), HasSubstr("'all | bf16 | auto'"), HasSubstr("'all | f32 | auto'")));
    EXPECT_THAT(refusal(make_request(1, 3, {{.name = "w", .shape = {2, 4}}, {.name = "b", .shape = {2}}})),
                AllOf(HasSubstr("mismatch: "), HasSubstr("'w'")));
    EXPECT_THAT(refusal(make_request(1, 3, two_tensors()), 1001),
                AllOf(HasSubstr("permission-denied: "), HasSubstr("belongs to uid 1000")));
    const auto used = host.budget.used_bytes;
    host.budget.limit_bytes = used + 1;
    EXPECT_THAT(refusal(make_request(1, 3, two_tensors())),
                AllOf(HasSubstr("resource-exhausted: "), HasSubstr("daemon.memory_limit_mib")));
    EXPECT_EQ(host.budget.used_bytes, used) << "a refusal keeps nothing";
    EXPECT_EQ(host.job->sessions().size(), 1U);
}
TEST(HostedJob, Job_that_cannot_be_made_takes_no_memory) {
    Host host;
    EXPECT_EQ(host.make_job(make_request(0, 1, two_tensors(), "topq(0.1) | f32")).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(host.budget.used_bytes, 0U);
    host.budget.limit_bytes = 1000;
    const auto status = host.make_job(make_request(0, 1, {{.name = "w", .shape = {1000}}}, "topk(0.1) | f32"));
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(host.budget.used_bytes, 0U);
}
TEST(HostedJob, Failed_step_leaves_the_state_as_if_it_had_not_been) {
    Host with_failure;
    Host without;
    const auto request = make_request(0, 1, {{.name = "w", .shape = {64}}}, "topk(0.1) | f32");
    auto& rank = with_failure.attach(request);
    auto& other = without.attach(request);
    with_failure.turn();
    without.turn();
    const std::uint32_t seed = std::random_device()();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Step step_without = 0;
    for (Step step = 1; step <= 6; ++step) {
        std::vector<float> values(64);
        for (auto& value : values) value = std::normal_distribution<float>()(random);
        const bool is_bad = step == 3 || step == 4;
        if (is_bad) values[11] = std::numeric_limits<float>::quiet_NaN();
        rank.client->submit(0, step, values);
        with_failure.turn();
        const auto* said = rank.client->last(CompletionKind::kTensor);
        ASSERT_TRUE(said != nullptr && said->step == step);
        if (is_bad) {
            EXPECT_THAT(text_of(said),
                        AllOf(HasSubstr("non-finite: "), HasSubstr("tensor 'w': NaN or infinity from rank 0 at "
                                                                   "element 11 in step " +
                                                                   std::to_string(step))));
            continue;
        }
        ASSERT_EQ(text_of(said), "ok: ");
        other.client->submit(0, ++step_without, values);
        without.turn();
        ASSERT_TRUE(other.client->has(CompletionKind::kTensor, step_without));
        EXPECT_EQ(rank.client->result(0), other.client->result(0)) << "step " << step;
    }
    EXPECT_EQ(with_failure.job->groups()[0].steps_aborted, 2U);
    EXPECT_EQ(with_failure.job->groups()[0].steps_committed, 4U);
    EXPECT_TRUE(with_failure.log.has("JOB=demo STEP=3"));
}
TEST(HostedJob, Dead_rank_ends_the_job_by_name_and_gives_all_memory_back) {
    Host host;
    auto& first = host.attach(make_request(0, 2, two_tensors()));
    auto& second = host.attach(make_request(1, 2, two_tensors()));
    host.turn();
    first.client->submit(0, 1, {1, 2, 3, 4, 5, 6});
    host.turn();
    host.job->on_session_gone(second.session, "its process (pid 4711 of alice) died", Host::now());
    host.turn();
    const auto said = text_of(first.client->last(CompletionKind::kJobEnded));
    EXPECT_THAT(said, AllOf(HasSubstr("peer-failed: rank 1"), HasSubstr("its process (pid 4711 of alice) died")));
    EXPECT_TRUE(host.job->is_ended());
    EXPECT_FALSE(host.job->is_removable()) << "sessions still point to it";
    EXPECT_GT(host.budget.used_bytes, 0U);
    ASSERT_TRUE(host.job->can_forget_sessions());
    for (auto& rank : host.ranks) host.job->forget(rank->session);
    ASSERT_TRUE(host.job->is_removable());
    host.job->release_memory();
    EXPECT_EQ(host.budget.used_bytes, 0U);
    EXPECT_TRUE(host.log.has("warning rank 1 is gone: its process (pid 4711 of alice) died JOB=demo"));
}
TEST(HostedJob, All_ranks_that_detach_end_it_in_good_order) {
    Host host;
    auto& first = host.attach(make_request(0, 2, two_tensors()));
    auto& second = host.attach(make_request(1, 2, two_tensors()));
    host.turn();
    first.client->detach();
    host.turn();
    EXPECT_FALSE(host.job->is_ended());
    MemoryRank again(make_request(0, 2, two_tensors()));
    EXPECT_THAT(again.attach(*host.job, Host::now()).to_string(),
                AllOf(HasSubstr("busy: rank 0 of job 'demo' has detached"), HasSubstr("try again in a moment")));
    second.client->detach();
    host.turn();
    EXPECT_TRUE(host.job->is_ended());
    for (auto& rank : host.ranks) EXPECT_EQ(text_of(rank->client->last(CompletionKind::kJobEnded)), "ok: ");
    EXPECT_TRUE(host.log.has("info job ended: all ranks detached JOB=demo"));
}
TEST(HostedJob, Broadcast_copies_the_roots_values_exactly_and_a_comparison_names_who_differs) {
    Host host;
    auto& first = host.attach(make_request(0, 2, two_tensors()));
    auto& second = host.attach(make_request(1, 2, two_tensors()));
    host.turn();
    const std::vector<float> values{1e-40F, -0.0F, 3.4e38F, 0.1F, 1, 2};  // denormal, sign of zero: as they are
    for (auto* rank : {&first, &second}) {
        auto slab = values;
        if (rank == &first) std::fill(slab.begin(), slab.end(), 9.0F);
        rank->client->fill(0, slab);
        rank->client->push(
            {.kind = shm::SubmissionKind::kBroadcast, .tensor_index = 0, .step = 1, .root = second.request.rank});
    }
    host.turn();
    ASSERT_TRUE(first.client->has(CompletionKind::kBroadcast, 1));
    const auto result = first.client->result(0);
    EXPECT_EQ(std::memcmp(result.data(), values.data(), values.size() * sizeof(float)), 0);
    first.client->push({.kind = shm::SubmissionKind::kCheckEqual, .step = 1, .digest = 5});
    second.client->push({.kind = shm::SubmissionKind::kCheckEqual, .step = 1, .digest = 6});
    host.turn();
    for (auto& rank : host.ranks)
        EXPECT_THAT(text_of(rank->client->last(CompletionKind::kCheckEqual)),
                    AllOf(HasSubstr("mismatch: check 1: rank 1"), HasSubstr("0000000000000006")));
    EXPECT_FALSE(host.job->is_ended());
}

/// Two daemons in one process.
struct TwoNodes {
    TwoNodes() : network(2), a(&network, 0), b(&network, 1) {}
    PipeNetwork network;
    Host a, b;
};

TEST(HostedJob, Two_nodes_end_every_step_with_the_same_bits) {
    TwoNodes nodes;
    const std::vector<shm::TensorEntry> tensors{{.name = "w", .shape = {500}}};
    auto& here = nodes.a.attach(make_request(0, 2, tensors, "topk(0.1) | pow2(bits=4) | auto"));
    auto& there = nodes.b.attach(make_request(1, 2, tensors, "topk(0.1) | pow2(bits=4) | auto"));
    ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, here, CompletionKind::kStarted, 1));
    ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, there, CompletionKind::kStarted, 1));
    std::mt19937 random(3);
    for (Step step = 1; step <= 20; ++step) {
        for (auto* rank : {&here, &there}) {
            std::vector<float> values(500);
            for (auto& value : values) value = std::normal_distribution<float>()(random);
            rank->client->submit(0, step, values);
        }
        ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, here, CompletionKind::kTensor, step));
        ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, there, CompletionKind::kTensor, step));
        const auto ours = here.client->result(0);
        const auto theirs = there.client->result(0);
        ASSERT_EQ(std::memcmp(ours.data(), theirs.data(), ours.size() * sizeof(float)), 0) << "step " << step;
        EXPECT_GT(std::count_if(ours.begin(), ours.end(), [](float value) { return value != 0; }), 10);
    }
    EXPECT_EQ(nodes.a.job->allreduce_bytes(), 20 * 4.0 * 500) << "2 (N - 1) / N x 4 n bytes a step";
    EXPECT_GT(nodes.a.job->payload_bytes_since_last_share(), 0.0);
    EXPECT_EQ(nodes.a.job->payload_bytes_since_last_share(), 0.0);
}
TEST(HostedJob, Two_nodes_that_accumulate_wait_and_send_together) {
    TwoNodes nodes;
    const std::vector<shm::TensorEntry> tensors{{.name = "w", .shape = {40, 50}}};
    const std::string codec = "accumulate(3) | all | bf16";
    auto& here = nodes.a.attach(make_request(0, 2, tensors, codec));
    auto& there = nodes.b.attach(make_request(1, 2, tensors, codec));
    ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, here, CompletionKind::kStarted, 1));
    ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, there, CompletionKind::kStarted, 1));
    for (Step step = 1; step <= 6; ++step) {
        here.client->submit(0, step, std::vector<float>(2000, 2.0F));
        there.client->submit(0, step, std::vector<float>(2000, -1.0F));
        for (auto* rank : {&here, &there}) {
            ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, *rank, CompletionKind::kTensor, step));
            const float sum = step % 3 == 0 ? 3 * 0.5F : 0.0F;
            EXPECT_EQ(rank->client->result(0), std::vector<float>(2000, sum)) << "step " << step;
        }
    }
    EXPECT_LT(nodes.a.job->payload_bytes_since_last_share(), 2 * 2 * 2000 * 1.1) << "of two steps alone";
}
TEST(HostedJob, Two_nodes_clip_at_the_threshold_times_the_root_of_two) {
    TwoNodes nodes;
    const std::vector<shm::TensorEntry> tensors{{.name = "w", .shape = {40, 50}}};
    const std::string codec = "momentum(0.5, clip=3) | all | f32";
    auto& here = nodes.a.attach(make_request(0, 2, tensors, codec));
    auto& there = nodes.b.attach(make_request(1, 2, tensors, codec));
    ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, here, CompletionKind::kStarted, 1));
    ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, there, CompletionKind::kStarted, 1));
    here.client->submit(0, 1, std::vector<float>(2000, 8.0F));
    there.client->submit(0, 1, std::vector<float>(2000, 0.03125F));  // its norm, 1.4, is below 3 sqrt(2)
    const double clipped = 3 * std::sqrt(2.0) / std::sqrt(2000.0);
    for (auto* rank : {&here, &there}) {
        ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, *rank, CompletionKind::kTensor, 1));
        for (const float value : rank->client->result(0)) ASSERT_NEAR(value, (clipped + 0.03125) / 2, 2e-8);
    }
}
TEST(HostedJob, Two_nodes_rotate_alike_and_get_one_average) {
    TwoNodes nodes;
    const std::vector<shm::TensorEntry> tensors{{.name = "w", .shape = {40, 50}}};
    auto& here = nodes.a.attach(make_request(0, 2, tensors, "rotate | all | f16"));
    auto& there = nodes.b.attach(make_request(1, 2, tensors, "rotate | all | f16"));
    ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, here, CompletionKind::kStarted, 1));
    ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, there, CompletionKind::kStarted, 1));
    std::vector<float> ramp(2000);
    for (std::size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<float>(i) / 1000;
    here.client->submit(0, 1, ramp);
    there.client->submit(0, 1, std::vector<float>(2000, 1.0F));
    for (auto* rank : {&here, &there}) {
        ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, *rank, CompletionKind::kTensor, 1));
        const auto result = rank->client->result(0);
        for (std::size_t i = 0; i < ramp.size(); ++i) ASSERT_NEAR(result[i], (ramp[i] + 1) / 2, 0.01) << i;
    }
    EXPECT_TRUE(std::ranges::equal(here.client->result(0), there.client->result(0)));
}
TEST(HostedJob, Run_whose_last_step_is_on_its_way_makes_the_next_one_wait) {
    TwoNodes nodes;
    const std::vector<shm::TensorEntry> tensors{{.name = "w", .shape = {4}}};
    auto& here = nodes.a.attach(make_request(0, 2, tensors));
    auto& there = nodes.b.attach(make_request(1, 2, tensors));
    ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, here, CompletionKind::kStarted, 1));
    ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, there, CompletionKind::kStarted, 1));
    nodes.network.hold(0, 1, true);  // what a says from here on does not arrive at b
    here.client->submit(0, 1, {1, 2, 3, 4});
    there.client->submit(0, 1, {3, 2, 1, 0});
    ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, here, CompletionKind::kTensor, 1));
    here.client->detach();
    ASSERT_TRUE(wait_until([&] {
        nodes.a.turn();
        return nodes.a.job->is_leaving(Host::now());
    }));
    for (const Rank rank : {Rank{0}, Rank{1}}) {
        MemoryRank next(make_request(rank, 2, tensors));
        EXPECT_EQ(next.attach(*nodes.a.job, Host::now()).code(), StatusCode::kBusy) << rank;
    }
    nodes.network.hold(0, 1, false);
    ASSERT_TRUE(wait_for({&nodes.a, &nodes.b}, there, CompletionKind::kTensor, 1));
    EXPECT_EQ(there.client->result(0), (std::vector<float>{2, 2, 2, 2}));
    there.client->detach();
    EXPECT_TRUE(wait_until([&] {
        nodes.a.turn();
        nodes.b.turn();
        return nodes.a.job->is_ended() && nodes.b.job->is_ended();
    }));
    EXPECT_EQ(text_of(here.client->last(CompletionKind::kJobEnded)), "ok: ");
    EXPECT_EQ(text_of(there.client->last(CompletionKind::kJobEnded)), "ok: ");
}

}  // namespace
}  // namespace gradsieve::daemon::test

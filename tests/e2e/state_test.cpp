// State survives: daemons and ranks are really killed in the middle of a run, and what comes out is, bit for bit, what
// an uninterrupted run gives. The service manager is played by the test.
#include "tests/e2e/training.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <csignal>

namespace gradsieve::e2e {
namespace {

/// A rank that has begun anew says so.
void expect_anew(Training& run) {
    for (auto& rank : run.ranks) {
        ASSERT_TRUE(rank.wait_for_line("again ")) << run.text();
        const auto first = rank.wait_for_line("started ");
        ASSERT_TRUE(first) << run.text();
        EXPECT_EQ(*first, "1") << run.text();
    }
}

TEST(State, A_killed_daemon_comes_back_with_its_state_and_the_run_gives_the_same_bits) {
    Training run;
    std::mt19937 random(1);
    run.start_ranks();
    kill_and_revive(run, 2, 20, random);
    run.finish();
    expect_as_uninterrupted(run);
    for (const auto& rank : run.ranks) EXPECT_EQ(lives(rank), 2U) << run.text();
    EXPECT_TRUE(contains(run.daemon_output(1), "state found again")) << run.text();
}
TEST(State, Both_daemons_killed_at_once_come_back_likewise) {
    Training run;
    std::mt19937 random(2);
    run.start_ranks();
    kill_and_revive(run, 3, 30, random);
    run.finish();
    expect_as_uninterrupted(run);
}
TEST(State, Every_array_comes_back_with_the_residual) {
    std::mt19937 random(6);
    for (const auto& [array, codec, expected] : kCodecsWithArrays) {
        SCOPED_TRACE(array);
        Training run;
        run.codec = codec;
        run.start_ranks();
        kill_and_revive(run, 3, 30, random);
        run.finish();
        expect_averages(run, expected());
        EXPECT_NE(expected(), uninterrupted());
    }
}
TEST(State, Residuals_of_averages_of_the_sharded_plan_come_back) {
    const std::string plan = "[network]\nheartbeat_ms = 100\nsilent_ms = 2000\n[codec]\nplan = \"sharded\"\n";
    Training calm(false, plan);
    calm.start_ranks();
    calm.finish();
    const auto expected = averages_of(calm.ranks[0]);
    EXPECT_NE(expected, uninterrupted());
    Training run(true, plan);
    std::mt19937 random(7);
    run.start_ranks();
    kill_and_revive(run, 3, 30, random);
    EXPECT_TRUE(run.cluster.wait_for_status(0, [](const auto& json) {
        return !json["jobs"].empty() && json["jobs"][0]["tensors"][0].contains("averages");
    }));
    run.finish();
    expect_averages(run, expected);
}
TEST(State, A_killed_rank_is_started_again_and_the_daemons_go_on_where_they_were) {
    Training run;
    std::mt19937 random(3);
    run.start_ranks();
    kill_and_revive(run, 4, 25, random);
    run.finish();
    for (const auto& rank : run.ranks)
        for (const auto& [step, digest] : averages_of(rank)) EXPECT_EQ(digest, uninterrupted().at(step)) << step;
}
TEST(State, Status_tells_the_step_that_a_job_went_on_from) {
    Training run;
    std::mt19937 random(4);
    run.start_ranks();
    kill_and_revive(run, 1, 20, random);
    for (auto& rank : run.ranks) ASSERT_TRUE(rank.wait_for_line("finished", Milliseconds(60'000))) << run.text();
    for (std::size_t node = 0; node < 2; ++node) {
        EXPECT_TRUE(run.cluster.wait_for_status(node, [](const auto& json) {
            return json["jobs"][0]["groups"][0]["committed_step"] == kSteps;
        })) << run.text();
        const auto status = run.cluster.status(node);
        const auto& job = status["jobs"][0];
        EXPECT_GE(job["groups"][0]["resumed_step"].template get<int>(), 18) << status.dump(1);
        EXPECT_EQ(job["state_text"], "");
        EXPECT_EQ(status["states"]["parked"], true);
    }
    for (auto& rank : run.ranks) rank.say("go");
    for (auto& rank : run.ranks) EXPECT_EQ(rank.wait_for_exit(), 0) << run.text();
}
TEST(State, All_ranks_detached_nothing_stays_parked) {
    Training run;
    run.start_ranks();
    run.wait_for_step(0, 5);
    for (std::size_t node = 0; node < 2; ++node) EXPECT_EQ(run.cluster.manager(node).parked().size(), 1U);
    run.finish();
    for (std::size_t node = 0; node < 2; ++node) {
        EXPECT_TRUE(run.cluster.wait_for_status(node, [](const auto& json) {
            return json["jobs"].empty() && json["daemon"]["memory_bytes"] == 0;
        })) << run.cluster.status(node).dump(1);
        EXPECT_TRUE(run.cluster.manager(node).parked().empty());
    }
}
TEST(State, Without_a_descriptor_store_the_job_begins_anew_and_says_that_state_was_lost) {
    Training run(false);
    std::mt19937 random(5);
    run.start_ranks();
    kill_and_revive(run, 2, 20, random);
    expect_anew(run);
    EXPECT_TRUE(run.cluster.wait_for_status(0, [](const auto& json) {
        return !json["jobs"].empty() && contains(json["jobs"][0]["state_text"], "node b has none");
    })) << run.cluster.status(0).dump(1);
}
TEST(State, What_all_nodes_keep_together_begins_anew_on_all_where_one_has_lost_it) {
    Training run(false);
    run.codec = kDeltaCodec;
    run.start_ranks();
    run.wait_for_step(0, 20);
    run.cluster.kill_daemon(1);
    run.cluster.restart_daemon(1);
    expect_anew(run);
    for (auto& rank : run.ranks) ASSERT_TRUE(rank.wait_for_line("finished", Milliseconds(60'000))) << run.text();
    EXPECT_TRUE(run.cluster.wait_for_status(0, [](const auto& json) {
        return !json["jobs"].empty() && contains(json["jobs"][0]["state_text"], "node b has none") &&
               json["jobs"][0]["digests_different"] == 0;
    })) << run.cluster.status(0).dump(1);
    for (auto& rank : run.ranks) rank.say("go");
    for (auto& rank : run.ranks) EXPECT_EQ(rank.wait_for_exit(), 0) << run.text();
    expect_averages(run, uninterrupted_delta());
}
TEST(State, A_damaged_descriptor_is_refused_by_name_and_given_up) {
    Training run;
    run.start_ranks();
    run.wait_for_step(0, 10);
    const auto name = run.cluster.manager(1).parked().at(0);
    run.cluster.kill_daemon(1);
    const int fd = run.cluster.manager(1).descriptor(name);
    char byte = 0;
    ASSERT_EQ(::pread(fd, &byte, 1, 70), 1);
    byte = static_cast<char>(byte ^ 1);
    ASSERT_EQ(::pwrite(fd, &byte, 1, 70), 1);
    struct stat damaged {};
    ASSERT_EQ(::fstat(fd, &damaged), 0);
    run.cluster.restart_daemon(1);
    EXPECT_TRUE(contains(run.daemon_output(1), "checksum differs")) << run.text();
    for (const auto& parked : run.cluster.manager(1).parked()) {  // by now the ranks may have begun anew
        struct stat now {};
        ASSERT_EQ(::fstat(run.cluster.manager(1).descriptor(parked), &now), 0);
        EXPECT_NE(now.st_ino, damaged.st_ino);
    }
    EXPECT_TRUE(contains(run.cluster.status(1)["states"]["lost"].dump(), "checksum differs"));
    expect_anew(run);
}
TEST(State, A_clean_restart_of_the_service_keeps_the_state_too) {
    Training run;
    run.start_ranks();
    run.wait_for_step(1, 15);
    run.cluster.daemon(0).send_signal(SIGTERM);
    ASSERT_EQ(run.cluster.daemon(0).wait_for_exit(), 0);
    run.cluster.restart_daemon(0);
    run.finish();
    expect_as_uninterrupted(run);
}
TEST(State, Another_model_under_the_same_run_begins_anew_naming_the_difference) {
    Training run;
    run.start_ranks();
    run.wait_for_step(0, 10);
    for (auto& rank : run.ranks) rank.send_signal(SIGKILL);
    for (auto& rank : run.ranks) ASSERT_TRUE(rank.wait_for_exit());
    run.ranks.clear();
    for (std::size_t index = 0; index < kWorld; ++index) run.ranks.push_back(run.rank(index, {"--wider", "1"}));
    for (auto& rank : run.ranks) {
        const auto first = rank.wait_for_line("started ");
        ASSERT_TRUE(first) << run.text();
        EXPECT_EQ(*first, "1");
    }
    const auto text = run.cluster.status(0)["jobs"][0].value("state_text", "");
    EXPECT_TRUE(contains(text, "tensor 'bias': shape [130] on the kept state, [131] on this run")) << text;
}

}  // namespace
}  // namespace gradsieve::e2e

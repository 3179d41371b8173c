#include "tests/e2e/cluster.hpp"

#include <gtest/gtest.h>
#include <set>

namespace gradsieve::e2e {
namespace {

/// Waits for all ranks to end well; their digests, one entry if all are equal.
std::set<std::string> digests(std::vector<Process>& ranks) {
    std::set<std::string> found;
    for (auto& rank : ranks) {
        const auto digest = rank.wait_for_line("digest ");
        EXPECT_TRUE(digest.has_value()) << rank.output();
        found.insert(digest.value_or("none"));
        EXPECT_EQ(rank.wait_for_exit(), 0) << rank.output();
    }
    return found;
}

TEST(Averaging, Two_nodes_of_two_ranks_plain_equals_the_average_in_double_precision) {
    Cluster cluster(2);
    auto ranks = cluster.ranks(4, {"--codec", "all | f32", "--exact", "1", "--steps", "20"});
    EXPECT_EQ(digests(ranks).size(), 1U);
}
TEST(Averaging, Two_nodes_with_the_default_codec_are_identical_on_every_rank) {
    Cluster cluster(2);
    auto ranks = cluster.ranks(4, {"--steps", "50", "--samples", "2", "--check-every", "10"});
    EXPECT_EQ(digests(ranks).size(), 1U);
    ASSERT_TRUE(cluster.wait_for_status(0, [](const auto& json) { return !json.at("ended_jobs").empty(); }));
    const auto ended = cluster.status(0).at("ended_jobs").at(0);
    EXPECT_EQ(ended.at("text"), "all ranks detached");
    EXPECT_EQ(ended.at("steps_committed"), 50);
    EXPECT_GT(ended.at("wire_ratio").get<double>(), 1.0);
}
TEST(Averaging, Every_codec_family_is_identical_on_every_rank) {
    Cluster cluster(2);
    for (const char* codec : {"variance(1.5) | pow2(bits=4) | auto", "variance(1, mode=faithful) | f32 | rice",
                              "variance_hybrid(8) | sign(scale=tau) | bitmap", "topk(0.05, gate=1) | bf16 | raw32",
                              "all | sign", "all | sign(scale=two_mean)", "all | sign(scale=none)", "all | bf16",
                              "lowrank(2, square)", "accumulate(2) | lowrank(1, 100)", "sketch(0.02)"}) {
        auto ranks = cluster.ranks(4, {"--codec", codec, "--steps", "20", "--samples", "2", "--job",
                                       std::string("codec-") + std::to_string(std::string_view(codec).size())});
        EXPECT_EQ(digests(ranks).size(), 1U) << codec;
    }
}
TEST(Averaging, One_node_measures_similarity_and_the_other_does_not) {
    Cluster cluster(2);
    std::vector<Process> ranks;
    for (std::size_t rank = 0; rank < 2; ++rank)
        ranks.push_back(cluster.rank(
            rank, {"--rank", std::to_string(rank), "--world", "2", "--steps", "1000", "--codec",
                   rank == 0 ? "all | f32; *: similarity | topk(0.05) | pow2" : "all | f32; *: topk(0.05) | pow2"}));
    const auto is_measured = [](const auto& json) {
        for (const auto& job : json.at("jobs"))
            for (const auto& tensor : job.at("tensors"))
                if (tensor.contains("similarity") && tensor.at("similarity").is_number()) return true;
        return false;
    };
    ASSERT_TRUE(cluster.wait_for_status(0, is_measured));
    EXPECT_FALSE(is_measured(cluster.status(1)));
    EXPECT_EQ(digests(ranks).size(), 1U);
}
/// Of the job that runs there, if it has a budget and has sent something.
nlohmann::json budget_of(const nlohmann::json& status) {
    for (const auto& job : status.at("jobs"))
        if (const auto& budget = job.at("budget"); !budget.is_null() && !budget.at("groups").empty()) return budget;
    return {};
}
TEST(Averaging, A_budget_on_one_node_is_met_there_and_averages_are_identical) {
    Cluster cluster(2);
    std::vector<Process> ranks;
    const std::string codec = "topk(0.01) | pow2(bits=4); *.bias: all | bf16";
    for (std::size_t rank = 0; rank < 2; ++rank)
        ranks.push_back(
            cluster.rank(rank, {"--rank", std::to_string(rank), "--world", "2", "--steps", "300", "--scale", "200",
                                "--codec", rank == 0 ? codec + "; budget_bytes_per_step = 2000" : codec}));
    const auto is_met = [](const auto& json) {
        const auto budget = budget_of(json);
        if (budget.is_null() || budget.at("groups")[0].at("verdict") != "holding") return false;
        const auto cost = budget.at("groups")[0].at("cost").template get<double>();
        return cost > 1900 && cost <= 2000 && budget.at("groups")[0].at("plain_ms").is_number();
    };
    EXPECT_TRUE(cluster.wait_for_status(0, is_met)) << cluster.status(0).dump(2);
    EXPECT_TRUE(budget_of(cluster.status(1)).is_null());
    EXPECT_EQ(digests(ranks).size(), 1U);
}
TEST(Averaging, A_budget_of_time_is_looked_for_on_the_link_as_it_is) {
    Cluster cluster(2, "[codec]\nbudget_ms_per_step = 0.001\n");
    auto ranks = cluster.ranks(2, {"--steps", "300", "--scale", "200", "--codec", "topk(0.5) | pow2(bits=4)"});
    // No link is that fast: what can be done is to send the least.
    const auto is_at_least = [](const auto& json) {
        const auto budget = budget_of(json);
        return !budget.is_null() && budget.at("groups")[0].at("verdict") == "over at least";
    };
    for (const std::size_t node : {0U, 1U})
        EXPECT_TRUE(cluster.wait_for_status(node, is_at_least)) << cluster.status(node).dump(2);
    EXPECT_EQ(digests(ranks).size(), 1U);
}
TEST(Averaging, A_slow_codec_steps_aside_on_the_node_that_asks_for_it_and_averages_are_identical) {
    Cluster cluster(2, "[codec]\nstep_aside = true\n");
    // Instrumented, a codec is slow before any link, and large tensors would take minutes.
    const std::string scale = kIsInstrumented ? "400" : "8000";
    auto ranks = cluster.ranks(
        2, {"--steps", "150", "--scale", scale, "--codec", "all | bf16; *.weight: all | dither(levels=7) | entropy"});
    // Whether plain was faster is this machine's to say; that it is looked at is not.
    const auto is_tried = [](const auto& json) {
        for (const auto& job : json.at("jobs"))
            if (const auto& aside = job.at("step_aside"); !aside.is_null() && aside.at("moves") > 0) return true;
        return false;
    };
    for (const std::size_t node : {0U, 1U})
        EXPECT_TRUE(cluster.wait_for_status(node, is_tried)) << cluster.status(node).dump(2);
    EXPECT_EQ(digests(ranks).size(), 1U);
}
TEST(Averaging, Skipped_steps_are_identical_on_every_rank) {
    Cluster cluster(2);
    std::vector<Process> ranks;
    for (std::size_t rank = 0; rank < 4; ++rank)
        ranks.push_back(cluster.rank(
            rank / 2, {"--rank", std::to_string(rank), "--world", "4", "--steps", "400", "--steady", "5", "--samples",
                       "2", "--codec", "all | f32; *.weight: similarity(skip=0.5, most=3) | all | dither(levels=7)",
                       "--nan-at", rank == 3 ? "7" : "0", "--go-on", "1"}));
    const auto skips = [](const auto& json) {
        std::uint64_t skipped = 0;
        for (const auto& job : json.at("jobs"))
            for (const auto& tensor : job.at("tensors")) skipped += tensor.value("reused_steps", std::uint64_t{0});
        return skipped > 10;
    };
    for (const std::size_t node : {0U, 1U})
        EXPECT_TRUE(cluster.wait_for_status(node, skips)) << cluster.status(node).dump(2);
    EXPECT_EQ(digests(ranks).size(), 1U);
    for (auto& rank : ranks) EXPECT_NE(rank.output().find("failed step 7 non-finite"), std::string::npos);
}
/// The weights' 2,800 elements are selected from together, in the same order whatever order they are handed in.
constexpr auto kTogether = "all | f32; *.weight: topk(0.05, scope=model) | f32";

TEST(Averaging, Tensors_selected_from_together_are_identical_on_every_rank) {
    Cluster cluster(2);
    std::vector<Process> ranks;
    for (std::size_t rank = 0; rank < 4; ++rank)
        ranks.push_back(cluster.rank(rank / 2, {"--rank", std::to_string(rank), "--world", "4", "--steps", "1000",
                                                "--samples", "2", "--reverse", std::to_string(rank % 2), "--codec",
                                                kTogether, "--nan-at", rank == 3 ? "7" : "0", "--go-on", "1"}));
    const auto sends_its_share = [](const auto& json) {
        std::size_t kept = 0;
        for (const auto& job : json.at("jobs"))
            for (const auto& tensor : job.at("tensors"))
                if (tensor.at("codec").template get<std::string>().find("scope=model") != std::string::npos)
                    kept += tensor.at("kept_elements").template get<std::size_t>();
        return kept == 140;
    };
    EXPECT_TRUE(cluster.wait_for_status(0, sends_its_share)) << cluster.status(0).dump(2);
    EXPECT_EQ(digests(ranks).size(), 1U);
    for (auto& rank : ranks) EXPECT_NE(rank.output().find("failed step 7 non-finite"), std::string::npos);
}
TEST(Averaging, Ranks_that_wait_tensor_by_tensor_for_what_is_selected_together_are_told_so) {
    Cluster cluster(2, "[network]\nround_deadline_s = 0.5\n");
    auto ranks = cluster.ranks(4, {"--codec", kTogether, "--steps", "5", "--one-by-one", "3", "--go-on", "1"});
    EXPECT_EQ(digests(ranks).size(), 1U);
    for (auto& rank : ranks) {
        EXPECT_NE(rank.output().find("failed step 3 step-failed"), std::string::npos) << rank.output();
        EXPECT_NE(rank.output().find("1 of the 2 tensors that topk(scope=model) selects from, and 'fc2.weight' not "
                                     "within round_deadline_s (0.5 s)"),
                  std::string::npos)
            << rank.output();
    }
}
TEST(Averaging, Three_nodes_with_unequal_ranks_weigh_each_rank_the_same) {
    Cluster cluster(3);
    std::vector<Process> ranks;
    const std::vector<std::size_t> node_of_rank{0, 1, 1, 2, 2};
    for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank)
        ranks.push_back(cluster.rank(node_of_rank[rank], {"--rank", std::to_string(rank), "--world", "5", "--codec",
                                                          "all | f32", "--exact", "1", "--steps", "10"}));
    EXPECT_EQ(digests(ranks).size(), 1U);
}
TEST(Averaging, Nodes_with_ipv6_addresses) {
    if (!has_ipv6_loopback()) GTEST_SKIP() << "skipped: this machine has no address ::1";
    Cluster cluster(2, "", "[::1]");
    auto ranks = cluster.ranks(4, {"--codec", "all | f32", "--exact", "1", "--steps", "10"});
    EXPECT_EQ(digests(ranks).size(), 1U);
    const auto status = cluster.status(0);
    const auto port = std::to_string(cluster.port(1));
    EXPECT_EQ(status.at("peers").at(1).at("address"), "[::1]:" + port);
    EXPECT_EQ(status.at("peers").at(1).at("state"), "up");
    EXPECT_EQ(status.at("daemon").at("bound").get<std::string>().find("[::1]:" + std::to_string(cluster.port(0))), 0U)
        << status.at("daemon").at("bound");
    const auto peers = run({E2E_TOOL, "peers", "--socket", cluster.socket(0)});
    EXPECT_NE(peers.output.find("[::1]:" + port), std::string::npos) << peers.output;
}
TEST(Averaging, Ranks_may_register_tensors_in_different_orders) {
    Cluster cluster(2);
    std::vector<Process> ranks;
    for (std::size_t rank = 0; rank < 4; ++rank)
        ranks.push_back(cluster.rank(rank / 2, {"--rank", std::to_string(rank), "--world", "4", "--reverse",
                                                std::to_string(rank % 2), "--codec", "all | f32", "--exact", "1"}));
    EXPECT_EQ(digests(ranks).size(), 1U);
}
TEST(Averaging, Single_node_without_a_configuration_averages_exactly) {
    Cluster cluster(1);
    auto ranks = cluster.ranks(2, {"--exact", "1", "--steps", "10"});
    EXPECT_EQ(digests(ranks).size(), 1U);
}
TEST(Averaging, Large_tensors_take_several_chunks) {
    Cluster cluster(2);
    auto ranks = cluster.ranks(2, {"--scale", "20000", "--steps", "3", "--codec", "all | f32", "--exact", "1"});
    EXPECT_EQ(digests(ranks).size(), 1U);
}
TEST(Averaging, Broadcast_is_exact_from_a_root_on_the_other_node) {
    Cluster cluster(2);
    auto ranks = cluster.ranks(4, {"--broadcast", "1", "--broadcast-root", "3", "--steps", "2"});
    for (auto& rank : ranks) EXPECT_TRUE(rank.wait_for_line("broadcast ok")) << rank.output();
    EXPECT_EQ(digests(ranks).size(), 1U);
}
TEST(Averaging, The_same_job_starts_again_as_soon_as_its_ranks_have_detached) {
    Cluster cluster(2);
    for (int life = 0; life < 8; ++life) {
        auto ranks = cluster.ranks(4, {"--codec", "all | f32", "--exact", "1", "--steps", "3", "--check", "0"});
        for (auto& rank : ranks) ASSERT_TRUE(rank.wait_for_line("done")) << "life " << life << ": " << rank.output();
    }
}
TEST(Averaging, Two_jobs_at_once_do_not_meet) {
    Cluster cluster(2);
    auto first = cluster.ranks(2, {"--job", "first", "--codec", "all | f32", "--exact", "1", "--steps", "30"});
    auto second =
        cluster.ranks(2, {"--job", "second", "--scale", "50", "--codec", "all | f32", "--exact", "1", "--steps", "30"});
    EXPECT_EQ(digests(first).size(), 1U);
    EXPECT_EQ(digests(second).size(), 1U);
}
TEST(Averaging, A_late_rank_is_waited_for_and_named) {
    Cluster cluster(2);
    auto early = cluster.rank(
        0, {"--rank", "0", "--world", "2", "--timeout-ms", "300", "--patient", "1", "--steps", "3", "--check", "0"});
    auto late = cluster.rank(1, {"--rank", "1", "--world", "2", "--hold-at", "2", "--steps", "3", "--check", "0"});
    ASSERT_TRUE(late.wait_for_line("holding")) << late.output();
    ASSERT_TRUE(early.wait_for_line("timeout ")) << early.output();
    EXPECT_TRUE(cluster.wait_for_status(0, [](const auto& json) {
        const auto jobs = json.value("jobs", nlohmann::json::array());
        return !jobs.empty() && !jobs[0]["waiting"].empty() &&
               jobs[0]["waiting"][0]["ranks"] == nlohmann::json::array({1});
    })) << cluster.status(0).dump(2);
    late.say("");
    EXPECT_EQ(early.wait_for_exit(), 0) << early.output();
    EXPECT_EQ(late.wait_for_exit(), 0) << late.output();
}

}  // namespace
}  // namespace gradsieve::e2e

// Snapshots on disk: what is left when memory is gone, as after a reboot.
#include "tests/e2e/training.hpp"

#include <filesystem>
#include <fstream>

namespace gradsieve::e2e {
namespace {

constexpr std::uint64_t kEvery = 10;
/// The status page is published four times a second: a run lasts longer.
constexpr unsigned kComputeMs = 15;

std::string configuration() {
    return "[network]\nheartbeat_ms = 100\nsilent_ms = 2000\n[state]\nsnapshot_steps = " + std::to_string(kEvery) +
           "\n";
}
std::vector<std::filesystem::path> snapshots(const Training& run, std::size_t node) {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(run.cluster.folder() + (node == 0 ? "/a" : "/b")))
        if (entry.path().extension() == ".snapshot") found.push_back(entry.path());
    return found;
}
/// The power goes: daemons and what was parked of them.
void lose_memory(Training& run, const std::vector<std::size_t>& nodes) {
    for (const auto node : nodes) run.cluster.kill_daemon(node);
    for (const auto node : nodes) run.cluster.manager(node).forget();
    for (const auto node : nodes) run.cluster.restart_daemon(node);
}
bool is_on_disk(Training& run, std::size_t node, std::uint64_t step) {
    return run.cluster.wait_for_status(node, [&](const auto& json) {
        if (json["jobs"].empty()) return false;
        for (const auto& group : json["jobs"][0]["groups"])
            if (group["snapshot_step"] < step) return false;
        return true;
    });
}
/// The step after which each rank's second life began.
std::vector<std::uint64_t> resumed(Training& run) {
    std::vector<std::uint64_t> steps;
    for (auto& rank : run.ranks) {
        EXPECT_TRUE(rank.wait_for_line("again ")) << run.text();
        const auto first = rank.wait_for_line("started ", Milliseconds(60'000));
        EXPECT_TRUE(first) << run.text();
        steps.push_back(std::stoull(first.value_or("1")) - 1);
    }
    return steps;
}

TEST(Snapshot, Both_nodes_rebooted_go_on_from_the_last_snapshot_with_the_same_bits) {
    Training run(true, configuration());
    run.compute_ms = kComputeMs;
    run.start_ranks();
    run.wait_for_step(0, 25);
    for (std::size_t node = 0; node < 2; ++node) ASSERT_TRUE(is_on_disk(run, node, 20)) << run.text();
    lose_memory(run, {0, 1});
    for (const auto step : resumed(run)) {
        EXPECT_EQ(step % kEvery, 0U) << run.text();
        EXPECT_GE(step, 20U);
    }
    run.finish();
    expect_as_uninterrupted(run);
}
TEST(Snapshot, Every_array_is_on_disk) {
    for (const auto& [array, codec, expected] : kCodecsWithArrays) {
        SCOPED_TRACE(array);
        Training run(true, configuration());
        run.compute_ms = kComputeMs;
        run.codec = codec;
        run.start_ranks();
        run.wait_for_step(0, 25);
        for (std::size_t node = 0; node < 2; ++node) ASSERT_TRUE(is_on_disk(run, node, 20)) << run.text();
        lose_memory(run, {0, 1});
        for (const auto step : resumed(run)) EXPECT_GE(step, 20U);
        run.finish();
        expect_averages(run, expected());
    }
}
TEST(Snapshot, One_node_rebooted_takes_the_other_back_with_it_and_status_says_so) {
    Training run(true, configuration());
    run.compute_ms = kComputeMs;
    run.start_ranks();
    run.wait_for_step(3, 25);
    ASSERT_TRUE(is_on_disk(run, 1, 20)) << run.text();
    lose_memory(run, {1});
    for (const auto step : resumed(run)) EXPECT_EQ(step % kEvery, 0U) << run.text();
    // Node a kept its last two steps in memory. If one of them is the snapshot's by chance, it loses nothing to tell
    // of.
    EXPECT_TRUE(run.cluster.wait_for_status(0, [](const auto& json) {
        if (json["jobs"].empty() || json["ended_jobs"].empty()) return false;
        std::uint64_t resumed_steps = 0;
        const auto& groups = json["jobs"][0]["groups"];
        for (const auto& group : groups) resumed_steps += group["resumed_step"].template get<std::uint64_t>();
        const bool is_lossless = json["ended_jobs"][0]["steps_committed"] <= resumed_steps + groups.size();
        return is_lossless || contains(json["jobs"][0]["state_text"], "all nodes have only the snapshot of step");
    })) << run.cluster.status(0).dump(1);
    run.finish();
    expect_as_uninterrupted(run);
}
TEST(Snapshot, A_torn_file_is_refused_by_name_and_the_one_before_it_taken) {
    Training run(true, configuration());
    run.compute_ms = kComputeMs;
    run.start_ranks();
    run.wait_for_step(0, 35);
    for (std::size_t node = 0; node < 2; ++node) ASSERT_TRUE(is_on_disk(run, node, 30)) << run.text();
    for (std::size_t node = 0; node < 2; ++node) run.cluster.kill_daemon(node);
    std::uint64_t newest = 0;
    std::filesystem::path torn;
    for (const auto& path : snapshots(run, 1)) {
        const auto stem = path.stem().string();
        const auto step = std::stoull(stem.substr(stem.rfind('-') + 1));
        if (contains(stem, "-0-") && step > newest) newest = step, torn = path;
    }
    ASSERT_FALSE(torn.empty());
    std::filesystem::resize_file(torn, std::filesystem::file_size(torn) - 100);
    for (std::size_t node = 0; node < 2; ++node) run.cluster.manager(node).forget();
    for (std::size_t node = 0; node < 2; ++node) run.cluster.restart_daemon(node);
    for (const auto step : resumed(run)) EXPECT_EQ(step, newest - kEvery) << run.text();
    EXPECT_TRUE(contains(run.daemon_output(1), torn.filename().string())) << run.text();
    run.finish();
    for (const auto& rank : run.ranks)
        for (const auto& [step, digest] : averages_of(rank)) EXPECT_EQ(digest, uninterrupted().at(step)) << step;
}
TEST(Snapshot, A_clean_stop_writes_the_last_committed_step) {
    Training run(true, configuration());
    run.compute_ms = kComputeMs;
    run.start_ranks();
    run.wait_for_step(0, 13);
    for (std::size_t node = 0; node < 2; ++node) run.cluster.daemon(node).send_signal(SIGTERM);
    for (std::size_t node = 0; node < 2; ++node) ASSERT_EQ(run.cluster.daemon(node).wait_for_exit(), 0);
    for (std::size_t node = 0; node < 2; ++node) run.cluster.manager(node).forget();
    for (std::size_t node = 0; node < 2; ++node) run.cluster.restart_daemon(node);
    for (const auto step : resumed(run)) EXPECT_GE(step, 12U) << run.text();
    run.finish();
    expect_as_uninterrupted(run);
}
TEST(Snapshot, All_ranks_detached_none_is_left) {
    Training run(true, configuration());
    run.start_ranks();
    run.finish();
    for (std::size_t node = 0; node < 2; ++node) {
        EXPECT_TRUE(run.cluster.wait_for_status(node, [](const auto& json) { return json["jobs"].empty(); }));
        EXPECT_TRUE(snapshots(run, node).empty()) << snapshots(run, node).front();
    }
}

}  // namespace
}  // namespace gradsieve::e2e

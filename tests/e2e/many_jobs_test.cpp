// Eight jobs at once: one whose ranks are killed, one that feeds NaNs, one that scribbles over its slabs and rings, one
// that exhausts its limits. The other four must not notice.
#include "tests/e2e/many_jobs.hpp"

#include <gtest/gtest.h>

namespace gradsieve::e2e {
namespace {

constexpr std::uint64_t kSteps = 400;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void expect_healthy(const ManyJobs& seen) {
    EXPECT_EQ(seen.healthy.size(), 4U);
    for (const auto& [name, job] : seen.healthy) {
        for (const auto& end : job.ends) EXPECT_EQ(end, "0") << name << ": a wait that passes its deadline is an error";
        ASSERT_EQ(job.digests.size(), 2U);
        EXPECT_NE(job.digests[0], "none") << name;
        EXPECT_EQ(job.digests[0], job.digests[1]) << name << ": all ranks end with the same bits";
        EXPECT_LT(job.longest_us, 1000.0 * static_cast<double>(kManyJobsDeadline.count())) << name;
    }
}

TEST(ManyJobs, Four_that_misbehave_change_neither_a_bit_of_the_others_nor_a_deadline) {
    Cluster cluster(2, many_jobs_configuration());
    const auto quiet = run_many_jobs(cluster, /*has_faults=*/false, kSteps, "quiet");
    expect_healthy(quiet);
    const auto loud = run_many_jobs(cluster, /*has_faults=*/true, kSteps, "loud");
    expect_healthy(loud);
    for (const auto& [name, job] : quiet.healthy) EXPECT_EQ(loud.healthy.at(name).digests, job.digests) << name;

    const auto& faults = loud.faults;
    EXPECT_GE(faults.kills, 1U);
    EXPECT_EQ(faults.kills, faults.orphans.size());
    for (const auto& orphan : faults.orphans)
        EXPECT_TRUE(contains(orphan, "peer-failed") && contains(orphan, "rank 1")) << orphan;
    EXPECT_GE(faults.failed_steps, 1U);
    EXPECT_EQ(faults.is_nan_alive, (std::vector<bool>{true, true})) << "NaNs fail steps, not the job";
    EXPECT_EQ(faults.nan_errors, std::vector<std::string>());
    EXPECT_FALSE(faults.scribbles.empty());
    for (const auto& round : faults.scribbles) EXPECT_EQ(round, "scribbled");
    EXPECT_FALSE(faults.exhausts.empty());
    for (const auto& round : faults.exhausts)
        EXPECT_TRUE(contains(round, "resource-exhausted") || contains(round, "busy")) << round;
    for (const auto& end : faults.hostile_ends) EXPECT_EQ(end, "0");
    for (const std::size_t node : {0U, 1U}) EXPECT_EQ(health(cluster.status(node)), "live");
    // What the four took has come back: the next job finds room.
    EXPECT_TRUE(cluster.wait_for_status(1, [](const auto& json) { return json["jobs"].empty(); }));
    auto last =
        cluster.ranks(2, {"--job", "last", "--scale", "2000", "--steps", "3", "--exact", "1", "--codec", "all | f32"});
    for (auto& rank : last) EXPECT_EQ(rank.wait_for_exit(), 0) << rank.output();
    EXPECT_TRUE(cluster.stop_daemons());
}

}  // namespace
}  // namespace gradsieve::e2e

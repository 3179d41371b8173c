#include "cli/known_jobs.hpp"

#include "tests/cli/cli_fixture.hpp"

#include <gtest/gtest.h>

namespace gradsieve::cli {
namespace {

using Jobs = std::vector<KnownJob>;

TEST_F(CliTest, Known_jobs_are_those_of_the_status_page) {
    EXPECT_TRUE(known_jobs(socket()).empty()) << "no page";
    const auto page = make_page(R"({"format": 1, "jobs": [{"name": "a", "run_id": "1"}, {"name": 5}, 7],
                                    "ended_jobs": [{"name": "b", "run_id": "2"}]})");
    EXPECT_EQ(known_jobs(socket()), (Jobs{{"a", "1", true}, {"", "", true}, {"b", "2", false}}));
}
TEST_F(CliTest, Known_jobs_of_a_page_that_is_none_are_none) {
    const auto page = make_page("[1, 2");
    EXPECT_TRUE(known_jobs(socket()).empty());
}
TEST(KnownJobs, The_one_that_runs_is_chosen) {
    const Jobs jobs = {{"a", "1", true}, {"b", "2", false}};
    EXPECT_EQ(choose_running_job(jobs, "", "").value(), jobs[0]);
    EXPECT_EQ(choose_running_job(jobs, "a", "").value(), jobs[0]);
    EXPECT_EQ(choose_running_job(jobs, "", "1").value(), jobs[0]);
    EXPECT_EQ(choose_running_job(jobs, "b", "2").status().text(),
              "job 'b', run '2': the daemon runs none such: needed is one; name it with --job and --run, gradsieve "
              "status shows them");
}
TEST(KnownJobs, Several_are_named) {
    const Jobs jobs = {{"a", "1", true}, {"a", "2", true}, {"c\n", "3", true}};
    EXPECT_EQ(choose_running_job(jobs, "a", "2").value(), jobs[1]);
    EXPECT_EQ(choose_running_job(jobs, "", "").status().text(),
              "no job is named: the daemon runs 3: 'a' (run '1'), 'a' (run '2'), 'c?' (run '3'): needed is one; name "
              "it with --job and --run, gradsieve status shows them");
    EXPECT_EQ(choose_running_job(jobs, "a", "").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gradsieve::cli

#include "cli/open_metrics.hpp"

#include "tests/cli/golden.hpp"

#include <gmock/gmock.h>

#include <regex>
#include <set>

namespace gradsieve::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

HealthView health(const std::string& state) { return {state, 4711, 0.25, false, "/run/gradsieve/status", "", ""}; }

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

/// The grammar of OpenMetrics 1.0 as far as it is used here, and types that Prometheus' older format has too: families
/// once and together, TYPE before UNIT before HELP, names that end in their unit, suffixes by type, no sample twice,
/// EOF last.
void expect_well_formed(const std::string& text) {
    static const std::regex kType("# TYPE ([a-z_]+) (gauge|counter)");
    static const std::regex kSample(R"(([a-z_]+)(\{([a-z_]+="(\\.|[^"\\])*",?)+\})? (-?[0-9][0-9.e+-]*))");
    std::set<std::string> families;
    std::set<std::string> samples;
    std::string family;
    std::string suffix;
    const auto lines = lines_of(text);
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.back(), "# EOF");
    EXPECT_EQ(text.back(), '\n');
    for (std::size_t at = 0; at + 1 < lines.size(); ++at) {
        std::smatch match;
        if (std::regex_match(lines[at], match, kType)) {
            family = match[1];
            EXPECT_TRUE(families.insert(family).second) << "twice: " << family;
            suffix = match[2] == "counter" ? "_total" : "";
        } else if (lines[at].starts_with("# UNIT ")) {
            EXPECT_EQ(lines[at].find("# UNIT " + family + ' '), 0U) << lines[at];
            EXPECT_TRUE(family.ends_with(lines[at].substr(lines[at].rfind(' ') + 1))) << lines[at];
        } else if (lines[at].starts_with("# HELP ")) {
            EXPECT_EQ(lines[at].find("# HELP " + family + ' '), 0U) << lines[at];
            EXPECT_FALSE(lines[at + 1].starts_with("#")) << "no samples: " << family;
        } else {
            ASSERT_TRUE(std::regex_match(lines[at], match, kSample)) << lines[at];
            EXPECT_EQ(match[1].str(), family + suffix) << lines[at];
            EXPECT_TRUE(samples.insert(match[1].str() + match[2].str()).second) << "twice: " << lines[at];
        }
    }
}

TEST(OpenMetrics, Every_document_gives_well_formed_text) {
    for (const char* name : {"two_nodes", "trouble", "single_node", "states", "hostile"}) {
        SCOPED_TRACE(name);
        expect_well_formed(open_metrics_text(view_of(name), health("live")));
    }
}
TEST(OpenMetrics, Ordinary_text_is_as_written) {
    expect_golden("two_nodes.metrics.txt", open_metrics_text(view_of("two_nodes"), health("live")));
}
TEST(OpenMetrics, A_daemon_that_is_not_there_is_told_by_health_alone) {
    const auto text = open_metrics_text({}, health("never-ran"));
    expect_well_formed(text);
    EXPECT_THAT(text, HasSubstr("gradsieve_up 0\n"));
    EXPECT_THAT(text, HasSubstr("gradsieve_health{state=\"never-ran\"} 1\n"));
    EXPECT_THAT(text, Not(HasSubstr("gradsieve_uptime")));
}
TEST(OpenMetrics, Names_are_escaped_and_sums_taken) {
    StatusView status;
    status.format = 1;
    status.daemon.errors = {{"a", 3, 0}, {"b", 4, 0}};
    JobView job;
    job.name = "a \"quoted\" \\ name";
    job.step_ms.median = 5.0;
    job.waiting = {{"", "", 1, 2.5, {}, {}}, {"", "", 2, 0.5, {}, {}}};
    job.missing_ranks = {1, 3};
    status.jobs = {job};
    const auto text = open_metrics_text(status, health("live"));
    expect_well_formed(text);
    EXPECT_THAT(text, HasSubstr("gradsieve_errors_total 7\n"));
    EXPECT_THAT(text, HasSubstr(R"(gradsieve_job_missing_ranks{job_name="a \"quoted\" \\ name",run=""} 2)"));
    EXPECT_THAT(text, HasSubstr(R"(statistic="median"} 0.005)"));
    EXPECT_THAT(text, HasSubstr(R"(gradsieve_job_waiting_seconds{job_name="a \"quoted\" \\ name",run=""} 2.5)"));
}
TEST(OpenMetrics, Budgets_are_told_by_group) {
    StatusView status;
    status.format = 1;
    JobView job;
    job.name = "m";
    job.budget.groups = {{.name = "g",
                          .verdict = "holding",
                          .text = "",
                          .limit = 200,
                          .density = 1.5,
                          .cost = 190.0,
                          .coded_ms = 2.0,
                          .plain_ms = 8.0}};
    status.jobs = {job};
    const auto text = open_metrics_text(status, health("live"));
    expect_well_formed(text);
    EXPECT_THAT(text, HasSubstr(R"(gradsieve_group_density_factor{job_name="m",run="",group="g"} 1.5)"));
    EXPECT_THAT(text, HasSubstr(R"(gradsieve_group_budget_used{job_name="m",run="",group="g"} 0.95)"));
    EXPECT_THAT(text, HasSubstr(R"(gradsieve_group_coded_seconds{job_name="m",run="",group="g"} 0.002)"));
    EXPECT_THAT(text, HasSubstr(R"(gradsieve_group_plain_seconds{job_name="m",run="",group="g"} 0.008)"));
    status.jobs[0].budget.groups[0].cost.reset();
    EXPECT_THAT(open_metrics_text(status, health("live")), testing::Not(HasSubstr("gradsieve_group_budget_used{")));
}
TEST(OpenMetrics, Tensors_aside_are_told_where_they_may_be) {
    StatusView status;
    status.format = 1;
    JobView job;
    job.name = "m";
    status.jobs = {job};
    EXPECT_THAT(open_metrics_text(status, health("live")), testing::Not(HasSubstr("gradsieve_job_tensors_aside{")));
    status.jobs[0].step_aside.text = "off: link faster than codec";
    status.jobs[0].step_aside.aside = 3;
    status.jobs[0].step_aside.saved_ms = 21.0;
    const auto text = open_metrics_text(status, health("live"));
    expect_well_formed(text);
    EXPECT_THAT(text, HasSubstr(R"(gradsieve_job_tensors_aside{job_name="m",run=""} 3)"));
    EXPECT_THAT(text, HasSubstr(R"(gradsieve_job_step_aside_saved_seconds{job_name="m",run=""} 0.021)"));
}
TEST(OpenMetrics, Page_names_every_family) {
    std::ifstream file(std::string(GRADSIEVE_SOURCE_DIR) + "/docs/metrics.md");
    ASSERT_TRUE(file.is_open());
    std::ostringstream page;
    page << file.rdbuf();
    std::set<std::string> families;
    for (const char* name : {"two_nodes", "trouble", "states"})
        for (const auto& line : lines_of(open_metrics_text(view_of(name), health("live"))))
            if (line.starts_with("# TYPE ")) families.insert(line.substr(7, line.rfind(' ') - 7));
    EXPECT_GE(families.size(), 35U);
    for (const auto& family : families) EXPECT_THAT(page.str(), HasSubstr("| `" + family + "` |"));
}

}  // namespace
}  // namespace gradsieve::cli

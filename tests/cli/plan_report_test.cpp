#include "cli/plan_report.hpp"

#include "tests/cli/cli_fixture.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <fstream>

namespace gradsieve::cli {
namespace {

using testing::HasSubstr;

PlanRow row(const char* name, bool is_codec, double exposed_seconds) {
    return {name, is_codec, {1e6, 0.01, exposed_seconds, exposed_seconds, 0.1 + exposed_seconds}};
}
PlanReport report(std::vector<PlanRow> rows) {
    return {{1'000'000, 4, 0.1, 0.5}, {1e9, 50e-6, 1.05}, "codecs as fast as thought", "sockets, too", false,
            std::move(rows)};
}

TEST(PlanReport, Mildest_codec_that_is_about_as_fast_as_the_fastest_is_chosen) {
    const auto choice = choose_plan(report({row("fp32", false, 0.4), row("fp16", false, 0.2), row("mild", true, 0.05),
                                            row("middle", true, 0.011), row("strong", true, 0.007)}));
    EXPECT_EQ(choice.verdict, PlanVerdict::kPays);
    EXPECT_EQ(choice.plain, 1U);
    EXPECT_EQ(choice.codec, 3U);
}
TEST(PlanReport, Steps_aside_where_the_link_is_fast_and_says_so) {
    const auto fast = report({row("fp32", false, 0.002), row("mild", true, 0.004), row("strong", true, 0.001)});
    EXPECT_EQ(choose_plan(fast).verdict, PlanVerdict::kStepAside);
    EXPECT_THAT(render_plan(fast, {100, 0, false, true}),
                HasSubstr("It does not pay: with fp32 a step takes 102.0 ms, 2 % more"));
    const auto close = report({row("fp32", false, 0.008), row("strong", true, 0.001)});
    EXPECT_EQ(choose_plan(close).verdict, PlanVerdict::kHardlyPays);
    EXPECT_THAT(render_plan(close, {100, 0, false, true}), HasSubstr("It hardly pays"));
}
TEST(PlanReport, Programs_get_every_row_and_the_verdict) {
    const auto root = nlohmann::json::parse(plan_json(report({row("fp32", false, 0.4), row("mild", true, 0.05)})));
    EXPECT_EQ(root["verdict"], "pays");
    EXPECT_EQ(root["codec"], "mild");
    EXPECT_EQ(root["all_reduce"], "fp32");
    ASSERT_EQ(root["rows"].size(), 2U);
    EXPECT_DOUBLE_EQ(root["rows"][1]["exposed_s"], 0.05);
}
TEST(PlanReport, Link_speeds_are_read_as_people_write_them) {
    EXPECT_DOUBLE_EQ(link_speed("1Gbit"), 1e9);
    EXPECT_DOUBLE_EQ(link_speed("25 Gbit/s"), 25e9);
    EXPECT_DOUBLE_EQ(link_speed("100M"), 1e8);
    EXPECT_DOUBLE_EQ(link_speed("0.5Gbps"), 5e8);
    for (const char* text : {"", "fast", "1", "0Gbit", "-1Gbit", "1Gbyte", "nanG", "infG", "1 TB/s"})
        EXPECT_EQ(link_speed(text), 0) << text;
}

// 100 M parameters, 4 workers: 1.6 GB of fp32 gradients a step in all.
TEST_F(CliTest, Plan_says_that_a_slow_link_pays_and_with_what) {
    const auto ran = run_here({"plan", "--params", "100M", "--nodes", "4", "--link", "1Gbit", "--step-ms", "300",
                               "--codec-speed", "1e9", "--socket-speed", "100Gbit"});
    EXPECT_EQ(ran.code, ExitCode::kOk) << ran.error;
    EXPECT_THAT(ran.out, HasSubstr("100M parameters on 4 nodes at 1 Gbit/s, 300.0 ms of computing a step"));
    EXPECT_THAT(ran.out, HasSubstr("600 MB"));
    EXPECT_THAT(ran.out, HasSubstr("It pays: with all-reduce, fp16 a step takes 2,668 ms, 789 % more"));
    EXPECT_THAT(ran.out, HasSubstr("6 % for headers"));
    EXPECT_THAT(ran.out, HasSubstr("100 Gbit/s through a core's sockets"));
}
TEST_F(CliTest, Plan_with_a_speed_of_ones_own_is_arithmetic_alone) {
    const auto ran = run_here({"plan", "-p", "1M", "-n", "2", "-l", "100Gbit", "-s", "100", "--codec", "all | bf16",
                               "--codec-speed", "1e11", "--socket-speed", "80Gbit", "--json"});
    ASSERT_EQ(ran.code, ExitCode::kOk) << ran.error;
    const auto root = nlohmann::json::parse(ran.out);
    EXPECT_EQ(root["verdict"], "does not pay");
    ASSERT_EQ(root["rows"].size(), 3U);
    EXPECT_NEAR(root["rows"][2]["sent_bytes"], 2e6, 2e3);
    EXPECT_NEAR(root["rows"][2]["exchange_s"], 3 * 1e6 / 1e11 + 16e6 * 1538 / 1448 / 100e9 + 2e6 / 1e10 + 50e-6, 1e-6);
    EXPECT_NEAR(root["rows"][0]["exchange_s"], 32e6 * 1538 / 1448 / 100e9 + 4e6 / 1e10 + 32 * 50e-6, 1e-6);
    EXPECT_DOUBLE_EQ(root["host_s_per_byte"], 1e-10);
}
/// 7 payloads go out of each of 8 nodes by gather, 2 times 7 eighths of one by shards.
TEST_F(CliTest, Plan_takes_the_sharded_plan_from_where_it_is_faster) {
    const auto ran = run_here({"plan",
                               "-p",
                               "100M",
                               "-n",
                               "8",
                               "-l",
                               "1Gbit",
                               "-s",
                               "100",
                               "--codec",
                               "all | bf16",
                               "--codec",
                               "all | sign(scale=none)",
                               "--codec",
                               "topk(0.001) | pow2",
                               "--codec-speed",
                               "1e11",
                               "--socket-speed",
                               "100G",
                               "--json"});
    ASSERT_EQ(ran.code, ExitCode::kOk) << ran.error;
    const auto rows = nlohmann::json::parse(ran.out)["rows"];
    EXPECT_TRUE(rows[0]["plan"].is_null());
    EXPECT_EQ(rows[2]["plan"], "sharded");
    EXPECT_NEAR(rows[2]["sent_bytes"], 2 * 2e8 * 7 / 8, 1e6);
    EXPECT_EQ(rows[3]["plan"], "gather") << "votes go to all";
    EXPECT_EQ(rows[4]["plan"], "gather") << "few bytes, hidden by the backward pass";
    const auto two = run_here({"plan", "-p", "1M", "-n", "2", "-l", "1Gbit", "-s", "100", "--codec", "all | bf16"});
    EXPECT_THAT(two.out, HasSubstr("all | bf16        gather  "));
}
TEST_F(CliTest, Plan_measures_a_codec_on_this_machine) {
    const auto ran =
        run_here({"plan", "-p", "10k", "-n", "2", "-l", "1Gbit", "-s", "100", "-c", "all | bf16", "--json"});
    ASSERT_EQ(ran.code, ExitCode::kOk) << ran.error;
    const auto root = nlohmann::json::parse(ran.out);
    EXPECT_GT(root["rows"][2]["exchange_s"], 16 * 2e4 / 1e9 / 2);
    EXPECT_GT(root["host_s_per_byte"], 8e-12) << "no core moves 1,000 Gbit/s";
    EXPECT_LT(root["host_s_per_byte"], 8e-8) << "any moves 0.1";
}
TEST_F(CliTest, Plan_takes_sizes_from_recorded_gradients) {
    const auto path = folder() + "/gradients.f32";
    std::vector<float> values(30'000);  // 3 steps, in each the same 100 of 10,000 are not zero
    for (std::size_t i = 0; i < values.size(); i += 100) values[i] = static_cast<float>(i + 1);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(4 * values.size()));
    const std::vector<std::string> command = {
        "plan",        "-p", "10k",   "-n", "2", "-l", "1Gbit", "-s", "100", "-c", "threshold(0.5) | f32 | raw32",
        "--gradients", path, "--json"};
    const auto ran = run_here(command);
    ASSERT_EQ(ran.code, ExitCode::kOk) << ran.error;
    EXPECT_NEAR(nlohmann::json::parse(ran.out)["rows"][2]["sent_bytes"], 8 * 100, 64);
    auto other = command;
    other[2] = "10001";
    const auto refused = run_here(other);
    EXPECT_EQ(refused.code, ExitCode::kFailed);
    EXPECT_THAT(refused.error, HasSubstr("120000 bytes; allowed are whole gradients of 10001 numbers of 4 bytes"));
}
TEST_F(CliTest, Plan_refuses_what_makes_no_sense) {
    const auto bad = run_here({"plan", "-p", "1M", "-n", "2", "-l", "fast", "-s", "100"});
    EXPECT_EQ(bad.code, ExitCode::kFailed);
    EXPECT_THAT(bad.error, HasSubstr("--link 'fast': allowed is a speed above 0"));
    EXPECT_THAT(run_here({"plan", "-p", "1M", "-n", "2", "-l", "1G", "-s", "9", "--socket-speed", "much"}).error,
                HasSubstr("--socket-speed 'much': allowed is a speed above 0"));
    EXPECT_THAT(run_here({"plan", "-p", "1M", "-n", "2", "-l", "1G", "-s", "9", "-g", "/none"}).error,
                HasSubstr("gradients '/none': No such file"));
    EXPECT_EQ(run_here({"plan", "-p", "0", "-n", "2", "-l", "1G", "-s", "100"}).code, ExitCode::kFailed);
    EXPECT_EQ(run_here({"plan", "-p", "1M", "-n", "0", "-l", "1G", "-s", "100"}).code, ExitCode::kFailed);
    EXPECT_EQ(run_here({"plan", "-p", "1M", "-n", "2", "-l", "1G", "-s", "0"}).code, ExitCode::kFailed);
    EXPECT_EQ(run_here({"plan", "-p", "1M", "-n", "2", "-l", "1G", "-s", "9", "-c", "topq"}).code, ExitCode::kFailed);
    EXPECT_EQ(run_here({"plan", "-p", "1M"}).code, ExitCode::kFailed);
}

}  // namespace
}  // namespace gradsieve::cli

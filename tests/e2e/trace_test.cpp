// gradsieve trace against real daemons: the file that comes out of it, and what is said where none does.
#include "tests/e2e/cluster.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

namespace gradsieve::e2e {
namespace {

using Json = nlohmann::json;
using Strings = std::vector<std::string>;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Ran trace(const Cluster& cluster, std::size_t node, Strings options) {
    Strings arguments{E2E_TOOL, "trace", "--socket", cluster.socket(node)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run(arguments, Milliseconds(60'000));
}
Json parse_file(const std::string& path) {
    std::ifstream file(path);
    return Json::parse(file, nullptr, false);
}
std::vector<Json> events(const Json& document, const std::string& phase, const std::string& category) {
    std::vector<Json> found;
    for (const auto& event : document["traceEvents"])
        if (event["ph"] == phase && event.value("cat", "") == category) found.push_back(event);
    return found;
}
std::int64_t ns(const Json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }
std::int64_t end_of(const Json& event) { return ns(event["ts"]) + ns(event["dur"]); }

/// Four ranks on two nodes, that train until they are killed.
std::vector<Process> endless_job(const Cluster& cluster, const std::string& name = "e2e") {
    auto ranks = cluster.ranks(4, {"--job", name, "--steps", "1000000000", "--codec", "topk(0.1) | pow2 | auto"});
    for (auto& rank : ranks) EXPECT_TRUE(rank.wait_for_line("started")) << rank.output();
    return ranks;
}
/// Reads the daemon's log until a line has `part` in it.
bool logs(Process& daemon, const std::string& part) {
    while (const auto line = daemon.wait_for_line("", Milliseconds(20'000)))
        if (contains(*line, part)) return true;
    return false;
}
bool has_steps(const Cluster& cluster, std::size_t node, std::uint64_t steps) {
    return cluster.wait_for_status(node, [&](const auto& json) {
        return !json["jobs"].empty() && json["jobs"][0]["groups"][0]["committed_step"] >= steps;
    });
}

TEST(Trace, Every_tensor_of_every_step_has_its_phases_inside_the_step_on_both_nodes) {
    Cluster cluster(2);
    const auto ranks = endless_job(cluster);
    ASSERT_TRUE(has_steps(cluster, 0, 3));
    for (const std::size_t node : {0U, 1U}) {
        const auto file = cluster.folder() + "/trace.json";
        const auto ran = trace(cluster, node, {"--job", "e2e", "--steps", "20", "-o", file});
        ASSERT_EQ(ran.code, 0) << ran.output;
        EXPECT_TRUE(contains(ran.output, "20 steps of job 'e2e'") && contains(ran.output, "wait for peers"))
            << ran.output;
        const auto document = parse_file(file);
        ASSERT_TRUE(document.is_object());
        EXPECT_EQ(document["otherData"]["steps_ended"], 20);
        EXPECT_EQ(document["otherData"]["events_lost"], 0);
        std::map<std::uint64_t, std::pair<std::int64_t, std::int64_t>> steps;
        for (const auto& event : events(document, "X", "step")) {
            EXPECT_EQ(event["args"]["outcome"], "committed");
            steps[event["args"]["step"]] = {ns(event["ts"]), end_of(event)};
        }
        ASSERT_EQ(steps.size(), 20U);
        EXPECT_EQ(steps.rbegin()->first - steps.begin()->first, 19U) << "without gaps";
        std::map<std::pair<std::uint64_t, std::string>, std::set<std::string>> phases;  // by step and track
        for (const auto& event : events(document, "X", "phase")) {
            const std::uint64_t step = event["args"]["step"];
            phases[{step, event["tid"].dump()}].insert(event["name"]);
            EXPECT_GE(event["dur"].get<double>(), 0) << event.dump();
            EXPECT_GE(ns(event["ts"]), steps.at(step).first) << event.dump();
            EXPECT_LE(end_of(event), steps.at(step).second) << event.dump();
            EXPECT_FALSE(event["args"].contains("cut")) << event.dump();
            if (event["name"] == "wait for peers" && event["args"].contains("last_node")) {
                EXPECT_EQ(event["args"]["last_node"], node == 0 ? "b" : "a");
            }
        }
        EXPECT_EQ(phases.size(), 20U * 5U) << "five tensors";
        for (const auto& [place, names] : phases)
            EXPECT_EQ(names, (std::set<std::string>{"wait for ranks", "wait for acknowledgements", "queue to encode",
                                                    "reduce + encode", "wait for peers", "queue to decode",
                                                    "decode + average", "hand back"}));
        std::set<std::string> hand_ins;
        for (const auto& event : events(document, "i", "hand-in"))
            hand_ins.insert(event["args"]["rank"].dump() + " " + event["args"]["step"].dump() + event["tid"].dump());
        EXPECT_EQ(hand_ins.size(), 20U * 5U * 2U);
        for (const auto* category : {"send", "receive"}) {
            EXPECT_EQ(events(document, "b", category).size(), 20U * 5U) << category;
            EXPECT_EQ(events(document, "e", category).size(), 20U * 5U) << category;
            for (const auto& event : events(document, "b", category))
                EXPECT_FALSE(event["args"].contains("cut")) << event.dump();
        }
    }
}
TEST(Trace, Two_jobs_are_told_apart_and_traced_at_the_same_time) {
    Cluster cluster(1);
    std::vector<Process> ranks;
    for (const auto* name : {"one", "two"})
        ranks.push_back(cluster.rank(0, {"--job", name, "--run", name, "--steps", "1000000000", "--check", "0"}));
    for (auto& rank : ranks) ASSERT_TRUE(rank.wait_for_line("started")) << rank.output();
    ASSERT_TRUE(cluster.wait_for_status(0, [](const auto& json) { return json["jobs"].size() == 2; }));
    const auto unclear = trace(cluster, 0, {});
    EXPECT_EQ(unclear.code, 1);
    EXPECT_TRUE(contains(unclear.output, "the daemon runs 2: 'one' (run 'one'), 'two' (run 'two')")) << unclear.output;
    Process other({E2E_TOOL, "trace", "--socket", cluster.socket(0), "--job", "one", "--steps", "500", "--json", "-o",
                   cluster.folder() + "/one.json"});
    const auto ran = trace(cluster, 0, {"--job", "two", "--steps", "7"});
    EXPECT_EQ(ran.code, 0) << ran.output;
    const auto document = Json::parse(ran.output, nullptr, false);
    ASSERT_TRUE(document.is_object()) << "without --output it is the trace that is printed: " << ran.output;
    EXPECT_EQ(document["otherData"]["job"], "two");
    EXPECT_EQ(events(document, "X", "step").size(), 7U);
    EXPECT_TRUE(events(document, "b", "send").empty()) << "one node";
    EXPECT_EQ(other.wait_for_exit(), 0) << other.output();
    const auto summary = Json::parse(other.output(), nullptr, false);
    EXPECT_EQ(summary["steps_ended"], 500) << other.output();
    EXPECT_EQ(summary["phases"].size(), 7U) << other.output();
}
TEST(Trace, A_job_that_hangs_is_an_error_in_words_and_shows_for_whom_it_waits) {
    Cluster cluster(2);
    auto first = cluster.rank(0, {"--rank", "0", "--world", "2", "--steps", "9", "--hold-at", "4"});
    auto second = cluster.rank(1, {"--rank", "1", "--world", "2", "--steps", "9", "--hold-at", "5"});
    for (auto* rank : {&first, &second}) ASSERT_TRUE(rank->wait_for_line("started")) << rank->output();
    ASSERT_TRUE(has_steps(cluster, 1, 3));
    const auto idle_file = cluster.folder() + "/idle.json";
    auto ran = trace(cluster, 0, {"--job", "e2e", "--steps", "2", "--timeout", "1", "-o", idle_file});
    EXPECT_EQ(ran.code, 1);
    EXPECT_TRUE(contains(ran.output, "0 of 2 steps ended within 1000 ms")) << ran.output;
    EXPECT_FALSE(std::filesystem::exists(idle_file)) << "nothing was recorded";
    const auto file = cluster.folder() + "/trace.json";
    Process tool({E2E_TOOL, "trace", "--socket", cluster.socket(0), "--job", "e2e", "--steps", "3", "--timeout", "3",
                  "-o", file});
    ASSERT_TRUE(logs(cluster.daemon(0), "a trace of 3 steps begins")) << cluster.daemon(0).output();
    first.say("");  // step 4 ends, and step 5 waits for rank 1
    ASSERT_TRUE(tool.wait_for_exit());
    EXPECT_TRUE(contains(tool.output(), " of 3 steps ended within 3000 ms; step 5 of group '' waits for "))
        << tool.output();
    const auto document = parse_file(file);
    ASSERT_TRUE(document.is_object()) << "what was recorded until then";
    bool is_shown = false;
    for (const auto& event : events(document, "X", "phase"))
        if (event["args"].contains("cut") && event["args"].contains("missing_nodes"))
            is_shown |= event["args"]["missing_nodes"] == Json::array({"b"});
    EXPECT_TRUE(is_shown) << document.dump(1);
    second.say("");
    for (auto* rank : {&first, &second}) EXPECT_EQ(rank->wait_for_exit(), 0) << rank->output();
}
TEST(Trace, What_cannot_be_done_is_said_before_anybody_waits) {
    Cluster cluster(1);
    const auto refused = [&](Strings options, const std::string& words) {
        const auto begin = std::chrono::steady_clock::now();
        const auto ran = trace(cluster, 0, std::move(options));
        EXPECT_EQ(ran.code, 1) << ran.output;
        EXPECT_TRUE(contains(ran.output, words)) << ran.output;
        EXPECT_LT(std::chrono::steady_clock::now() - begin, Milliseconds(30'000)) << "the timeout is 60 s";
    };
    refused({}, "no job is named: the daemon runs none such");
    refused({"--job", "no", "--run", "one"}, "job 'no', run 'one': it does not run here");
    auto forming = cluster.rank(0, {"--rank", "0", "--world", "2"});
    ASSERT_TRUE(cluster.wait_for_status(0, [](const auto& json) { return !json["jobs"].empty(); }));
    refused({"--job", "e2e"}, "job 'e2e' does not run: needed are steps");
    refused({"--job", "e2e", "-o", cluster.folder() + "/none/f.json"}, "--output " + cluster.folder() + "/none/f.json");
    refused({"--steps", "0"}, "--steps");
    refused({"--json"}, "--output");
    const auto nowhere = run({E2E_TOOL, "trace", "--socket", cluster.folder() + "/no.sock", "--job", "e2e"});
    EXPECT_EQ(nowhere.code, 1);
    EXPECT_TRUE(contains(nowhere.output, "no gradsieved listens there")) << nowhere.output;
}
TEST(Trace, A_tool_that_is_killed_leaves_nothing_behind_and_the_next_one_gets_its_trace) {
    Cluster cluster(1);
    auto rank = cluster.rank(0, {"--steps", "1000000000", "--hold-at", "4", "--check", "0"});
    ASSERT_TRUE(rank.wait_for_line("holding")) << rank.output();
    Process tool({E2E_TOOL, "trace", "--socket", cluster.socket(0), "--job", "e2e", "--run", "one"});
    ASSERT_TRUE(logs(cluster.daemon(0), "a trace of 20 steps begins")) << cluster.daemon(0).output();
    const auto busy = trace(cluster, 0, {"--job", "e2e", "--run", "one", "--steps", "1"});
    EXPECT_EQ(busy.code, 1);
    EXPECT_TRUE(contains(busy.output, "job 'e2e' is being traced")) << busy.output;
    tool.send_signal(SIGKILL);
    ASSERT_TRUE(tool.wait_for_exit());
    rank.say("");
    Ran ran;
    for (int turn = 0; turn < 50 && ran.code != 0; ++turn)
        ran = trace(cluster, 0, {"--job", "e2e", "--run", "one", "--steps", "3"});
    EXPECT_EQ(ran.code, 0) << ran.output;
}
TEST(Trace, A_job_that_ends_meanwhile_gives_the_steps_that_it_had) {
    Cluster cluster(1);
    auto rank = cluster.rank(0, {"--steps", "6", "--hold-at", "4", "--check", "0"});
    ASSERT_TRUE(rank.wait_for_line("holding")) << rank.output();
    const auto file = cluster.folder() + "/trace.json";
    Process tool({E2E_TOOL, "trace", "--socket", cluster.socket(0), "--job", "e2e", "--run", "one", "-o", file});
    ASSERT_TRUE(logs(cluster.daemon(0), "a trace of 20 steps begins")) << cluster.daemon(0).output();
    rank.say("");
    EXPECT_EQ(rank.wait_for_exit(), 0) << rank.output();
    EXPECT_EQ(tool.wait_for_exit(), 1) << tool.output();
    EXPECT_TRUE(contains(tool.output(), "job 'e2e' ended after 3 of 20 steps")) << tool.output();
    EXPECT_EQ(events(parse_file(file), "X", "step").size(), 3U);
}
TEST(Trace, Another_users_job_is_not_shown) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be two users";
    Cluster cluster(1, "[socket]\nmode = \"0666\"\n");
    const auto rank = cluster.rank(0, {"--steps", "1000000000", "--check", "0"});
    ASSERT_TRUE(cluster.wait_for_status(0, [](const auto& json) { return !json["jobs"].empty(); }));
    std::filesystem::permissions(cluster.folder(), std::filesystem::perms::others_exec,
                                 std::filesystem::perm_options::add);
    auto arguments = as_user(65534);
    arguments.insert(arguments.end(),
                     {E2E_TOOL, "trace", "--socket", cluster.socket(0), "--job", "e2e", "--run", "one"});
    const auto ran = run(arguments);
    EXPECT_EQ(ran.code, 1) << ran.output;
    EXPECT_TRUE(contains(ran.output, "job 'e2e', run 'one' is another user's, you are ")) << ran.output;
}

}  // namespace
}  // namespace gradsieve::e2e

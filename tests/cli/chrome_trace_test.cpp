// The trace's JSON, read by a reader that knows nothing of its writer.
#include "cli/chrome_trace.hpp"

#include "tests/cli/traced_reply.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>
#include <set>

namespace gradsieve::cli {
namespace {

using Json = nlohmann::json;

/// Whole nanoseconds out of microseconds with three decimals.
std::int64_t ns(const Json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

Json written(const shm::TraceReply& reply) {
    const shm::TraceRequest request{.job_name = "de'mo", .run_id = "one", .steps = 3};
    return Json::parse(chrome_trace(reply, put_together(reply), request));
}

class ChromeTrace : public testing::Test {
protected:
    ChromeTrace() {
        for (Step step = 5; step <= 7; ++step) made.whole_step(step);
        document = written(made.finish());
    }
    [[nodiscard]] std::vector<Json> events(const std::string& phase, const std::string& category = "") const {
        std::vector<Json> found;
        for (const auto& event : document["traceEvents"])
            if (event["ph"] == phase && (category.empty() || event.value("cat", "") == category))
                found.push_back(event);
        return found;
    }

    TracedReply made{20'261'129};
    Json document;
};

TEST_F(ChromeTrace, Says_what_it_is_of) {
    const auto& about = document["otherData"];
    EXPECT_EQ(about["job"], "de'mo");
    EXPECT_EQ(about["run_id"], "one");
    EXPECT_EQ(about["node"], "a");
    EXPECT_EQ(about["codec"], "all | f32");
    EXPECT_EQ(about["steps_asked"], 3);
    EXPECT_EQ(about["steps_ended"], 3);
    EXPECT_EQ(about["events_lost"], 0);
    EXPECT_EQ(document["displayTimeUnit"], "ms");
}
TEST_F(ChromeTrace, Every_track_has_a_name_and_a_place) {
    std::map<int, std::string> names;
    for (const auto& event : events("M"))
        if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
    EXPECT_EQ(names, (std::map<int, std::string>{{1, "steps"}, {2, "fc.\"weight\"\xEF\xBF\xBD"}, {3, "fc.bias"}}));
    for (const auto& event : document["traceEvents"])
        if (event["ph"] != "M") {
            EXPECT_TRUE(names.contains(event["tid"].get<int>())) << event.dump();
        }
}
TEST_F(ChromeTrace, All_steps_and_all_tensors_that_were_asked_for_are_there) {
    std::set<int> steps;
    for (const auto& event : events("X", "step")) {
        steps.insert(event["args"]["step"].get<int>());
        EXPECT_EQ(event["args"]["outcome"], "committed");
        EXPECT_EQ(event["name"], "step " + std::to_string(event["args"]["step"].get<int>()));
    }
    EXPECT_EQ(steps, (std::set<int>{5, 6, 7}));
    EXPECT_EQ(events("X", "tensor").size(), 6U);
    EXPECT_EQ(events("X", "phase").size(), 6U * 8U);
    EXPECT_EQ(events("i", "hand-in").size(), 6U * 2U);
    EXPECT_EQ(events("b", "send").size(), 6U * 2U);
    EXPECT_EQ(events("b", "receive").size(), 6U * 2U);
}
TEST_F(ChromeTrace, Phases_nest_in_their_tensor_and_tensors_in_their_step) {
    struct Span {
        std::int64_t begin, end;
    };
    const auto span_of = [](const Json& event) { return Span{ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])}; };
    std::map<int, Span> steps;
    for (const auto& event : events("X", "step")) steps.emplace(event["args"]["step"].get<int>(), span_of(event));
    std::map<std::pair<int, int>, Span> tensors;  // by track and step
    for (const auto& event : events("X", "tensor")) {
        const auto span = span_of(event);
        const int step = event["args"]["step"];
        EXPECT_GE(span.begin, steps.at(step).begin);
        EXPECT_LE(span.end, steps.at(step).end);
        tensors.emplace(std::pair(event["tid"].get<int>(), step), span);
    }
    std::map<std::pair<int, int>, std::int64_t> filled;
    for (const auto& event : events("X", "phase")) {
        const auto span = span_of(event);
        EXPECT_GE(event["dur"].get<double>(), 0) << event.dump();
        const std::pair key(event["tid"].get<int>(), event["args"]["step"].get<int>());
        EXPECT_GE(span.begin, tensors.at(key).begin) << event.dump();
        EXPECT_LE(span.end, tensors.at(key).end) << event.dump();
        filled[key] += span.end - span.begin;
    }
    for (const auto& [key, span] : tensors) EXPECT_EQ(filled[key], span.end - span.begin) << "phases fill their tensor";
    for (const auto& event : events("i")) {
        const auto& span = tensors.at({event["tid"].get<int>(), event["args"]["step"].get<int>()});
        EXPECT_GE(ns(event["ts"]), span.begin);
        EXPECT_LE(ns(event["ts"]), span.end);
    }
}
TEST_F(ChromeTrace, Payloads_begin_once_and_end_once) {
    std::map<int, Json> begun;
    for (const auto& event : events("b")) EXPECT_TRUE(begun.emplace(event["id"].get<int>(), event).second);
    EXPECT_EQ(events("e").size(), begun.size());
    for (const auto& event : events("e")) {
        const auto& begin = begun.at(event["id"].get<int>());
        EXPECT_EQ(event["name"], begin["name"]);
        EXPECT_EQ(event["cat"], begin["cat"]);
        EXPECT_GE(ns(event["ts"]), ns(begin["ts"]));
    }
    EXPECT_EQ(begun.at(1)["name"], "send to b");
}
TEST_F(ChromeTrace, Waits_say_for_whom) {
    for (const auto& event : events("X", "phase")) {
        if (event["name"] == "wait for peers") {
            EXPECT_EQ(event["args"]["last_node"], "b") << event.dump();
        }
        if (event["name"] == "wait for ranks") {
            EXPECT_LE(event["args"]["last_rank"].get<int>(), 1) << event.dump();
        }
        EXPECT_FALSE(event["args"].contains("missing_nodes")) << event.dump();
    }
    TracedReply hanging(1);
    hanging.hand_in(0, 1, 0);
    hanging.hand_in(1, 1, 0);
    hanging.hand_in(1, 1, 1);
    hanging.encode(1, 1);
    document = written(hanging.finish());
    const auto phases = events("X", "phase");
    EXPECT_EQ(phases.front()["args"], Json::parse(R"({"step":1,"cut":true,"last_rank":0,"missing_ranks":[1]})"));
    EXPECT_EQ(phases.back()["args"], Json::parse(R"({"step":1,"cut":true,"missing_nodes":["b","c"]})"));
}
TEST_F(ChromeTrace, Without_events_it_is_still_a_trace) {
    shm::TraceReply nothing;
    nothing.groups = {"g"};
    nothing.tensors = {{.name = "w", .group = 0, .elements = 1}};
    document = written(nothing);
    EXPECT_EQ(events("M").size(), 5U);
    EXPECT_EQ(document["traceEvents"].size(), 5U);
}

}  // namespace
}  // namespace gradsieve::cli

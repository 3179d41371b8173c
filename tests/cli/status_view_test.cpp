#include "cli/status_view.hpp"

#include "tests/cli/golden.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace gradsieve::cli {
namespace {

TEST(StatusView, Every_documented_key_arrives) {
    const auto view = parse_status_document(golden_text("two_nodes.json"));
    ASSERT_TRUE(view.is_ok());
    EXPECT_EQ(view->format, 1);
    EXPECT_EQ(view->daemon.node, "a");
    EXPECT_EQ(view->daemon.cpu_s, 412.9);
    EXPECT_EQ(view->daemon.memory_limit_bytes, 12'663'676'416U);
    EXPECT_EQ(view->security.mode, "curve");
    EXPECT_EQ(view->security.public_key, "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID");
    EXPECT_EQ(view->security.keys_refused + view->security.handshakes_failed, 0U);
    ASSERT_EQ(view->peers.size(), 2U);
    EXPECT_TRUE(view->peers[0].is_self);
    EXPECT_FALSE(view->peers[0].silent_s.has_value());
    EXPECT_EQ(view->peers[1].silent_s, 0.4);
    EXPECT_EQ(view->peers[1].bytes_received, 17'999'999U);
    const auto& job = view->jobs.at(0);
    EXPECT_EQ(job.world_size, 4U);
    EXPECT_EQ(job.ranks.at(1).pid, 99U);
    EXPECT_EQ(job.groups.at(0).committed_step, 4100U);
    EXPECT_EQ(job.waiting.at(0).ranks, std::vector<std::uint64_t>{3});
    EXPECT_EQ(job.waiting.at(0).peers, std::vector<std::string>{"b"});
    EXPECT_EQ(job.wire_ratio, 143.2);
    EXPECT_EQ(job.step_ms.exchange, 3.04);
    EXPECT_EQ(job.tensors.at(1).kept_elements, 2007U);
    EXPECT_EQ(job.tensors.at(1).residual_norm, 0.3123);
    EXPECT_EQ(job.tensors.at(1).variance_source, "groups, pooled");
    EXPECT_EQ(view->ended_jobs.at(0).text, "all ranks detached");
}
TEST(StatusView, The_documented_example_parses_with_every_key_read) {
    const auto page = [] {
        std::ifstream file(std::string(GRADSIEVE_SOURCE_DIR) + "/docs/status-document.md");
        return std::string(std::istreambuf_iterator<char>(file), {});
    }();
    const auto start = page.find("```json\n") + 8;
    const auto example = page.substr(start, page.find("```", start) - start);
    const auto view = parse_status_document(example);
    ASSERT_TRUE(view.is_ok());
    EXPECT_EQ(view->format, 1);
    EXPECT_EQ(view->daemon.errors.at(0).count, 3U);
    EXPECT_EQ(view->gpus.at(0).peers, "direct");
    EXPECT_EQ(view->jobs.at(0).missing_ranks, std::vector<std::uint64_t>{3});
    EXPECT_EQ(view->jobs.at(0).tensors.at(0).bits_per_kept, 11.5);
    EXPECT_EQ(view->ended_jobs.at(0).steps_committed, 100U);
}
TEST(StatusView, Text_that_is_no_object_is_corrupt_and_empty_is_nothing_yet) {
    EXPECT_EQ(parse_status_document("").value().format, 0);
    for (const auto* text : {"[1]", "{", "null", "{\"a\": 1}x", "\xff"}) {
        const auto view = parse_status_document(text);
        ASSERT_FALSE(view.is_ok()) << text;
        EXPECT_EQ(view.error().code(), StatusCode::kCorrupt);
    }
    EXPECT_EQ(parse_status_document("[1]").error().text(),
              "status document of 3 bytes: not a JSON object: allowed is what the daemon writes; restart the daemon, "
              "and report it if it "
              "comes back");
}
TEST(StatusView, Any_one_value_of_another_type_is_tolerated) {
    const auto document = nlohmann::json::parse(golden_text("two_nodes.json"));
    const std::vector<nlohmann::json> strange = {
        nullptr, true, -1, 1e300, "text", nlohmann::json::array({1}), nlohmann::json::object({{"a", 1}})};
    const auto flat = document.flatten();
    std::size_t tried = 0;
    for (const auto& [path, value] : flat.items())
        for (const auto& replacement : strange) {
            auto changed = document;
            changed[nlohmann::json::json_pointer(path)] = replacement;
            EXPECT_TRUE(parse_status_document(changed.dump()).is_ok()) << path;
            ++tried;
        }
    EXPECT_GT(tried, 500U);
}
TEST(StatusView, Json_form_is_the_document_with_health_added) {
    const HealthView health{"hung", 12, 4.5, true, "/run/status", "", ""};
    const auto text = document_with_health(golden_text("two_nodes.json"), health);
    auto json = nlohmann::json::parse(text);
    EXPECT_EQ(json["health"],
              nlohmann::json::parse(
                  R"({"state":"hung","pid":12,"heartbeat_age_s":4.5,"page":"/run/status","suspended":true})"));
    json.erase("health");
    EXPECT_EQ(json, nlohmann::json::parse(golden_text("two_nodes.json")));
    EXPECT_EQ(text.back(), '\n');
}
TEST(StatusView, Json_form_without_a_page_says_why) {
    const HealthView health{"never-ran", 0, 0, false, "/run/status", "no page", "start it"};
    EXPECT_EQ(nlohmann::json::parse(document_with_health("", health))["health"]["text"], "no page; start it");
    EXPECT_EQ(nlohmann::json::parse(peers_with_health("", health))["peers"], nlohmann::json::array());
}

}  // namespace
}  // namespace gradsieve::cli

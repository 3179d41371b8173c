#include "cli/commands.hpp"

#include "tests/cli/cli_fixture.hpp"

#include <gmock/gmock.h>

namespace gradsieve::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST_F(CliTest, Version_and_help_succeed) {
    EXPECT_EQ(run_here({"--version"}).out, "gradsieve " GRADSIEVE_VERSION "\n");
    const auto help = run_here({"--help"});
    EXPECT_EQ(help.code, ExitCode::kOk);
    for (const auto* word :
         {"status", "peers", "codecs", "check-config", "keygen", "state", "doctor", "Examples:", "Exit status:"})
        EXPECT_THAT(help.out, HasSubstr(word));
    EXPECT_THAT(run_here({"status", "--help"}).out, HasSubstr("--watch"));
}
TEST_F(CliTest, Wrong_usage_fails_with_one_and_says_so_on_the_error_stream) {
    const std::vector<std::vector<std::string>> wrong = {
        {}, {"statsu"}, {"status", "--no-such"}, {"status", "--watch", "--json"}, {"peers", "x"}};
    for (const auto& arguments : wrong) {
        const auto ran = run_here(arguments);
        EXPECT_EQ(ran.code, ExitCode::kFailed);
        EXPECT_EQ(ran.out, "");
        EXPECT_NE(ran.error, "");
    }
}
TEST_F(CliTest, Status_without_a_page_says_where_it_looked_and_what_to_do) {
    for (const auto* command : {"status", "peers"}) {
        const auto ran = run_here({command, "--socket", socket()});
        EXPECT_EQ(ran.code, ExitCode::kNeverRan);
        EXPECT_EQ(ran.out, "");
        EXPECT_EQ(ran.error, "gradsieve: no daemon has run here: there is no status page " + folder() +
                                 "/status; start it (systemctl start gradsieved, or gradsieved as a user), or name its "
                                 "socket with --socket\n");
    }
    EXPECT_THAT(run_here({"status", "--json", "--socket", socket()}).out, HasSubstr("\"state\": \"never-ran\""));
}
TEST_F(CliTest, Status_of_a_live_page_draws_it) {
    const auto page = make_page(golden_text("two_nodes.json"));
    const auto ran = run_here({"status", "--socket", socket()});
    EXPECT_EQ(ran.code, ExitCode::kOk);
    EXPECT_EQ(ran.error, "");
    EXPECT_THAT(ran.out, StartsWith("● live  pid " + std::to_string(::getpid()) + " · "));
    EXPECT_THAT(ran.out, HasSubstr("job fashion"));
    const auto peers = run_here({"peers", "--socket", socket()});
    EXPECT_EQ(peers.code, ExitCode::kOk);
    EXPECT_THAT(peers.out, HasSubstr("10.0.0.2:7077  up"));
    EXPECT_THAT(run_here({"peers", "--json", "--socket", socket()}).out, HasSubstr("\"bytes_sent\": 18123456"));
}
TEST_F(CliTest, Page_that_is_no_page_is_unreadable) {
    std::ofstream(folder() + "/status") << std::string(100'000, 'x');
    const auto ran = run_here({"status", "--socket", socket()});
    EXPECT_EQ(ran.code, ExitCode::kUnreadable);
    EXPECT_THAT(ran.error, HasSubstr(folder() + "/status"));
}
TEST_F(CliTest, Document_that_is_no_json_is_unreadable_but_health_is_told) {
    const auto page = make_page("not json");
    const auto ran = run_here({"status", "--socket", socket()});
    EXPECT_EQ(ran.code, ExitCode::kUnreadable);
    EXPECT_THAT(ran.out, StartsWith("● live  pid "));
    EXPECT_THAT(ran.error, HasSubstr("not a JSON object"));
}
TEST_F(CliTest, Check_config_prints_values_or_the_problem) {
    const auto file = folder() + "/c.toml";
    std::ofstream(file) << "[network]\nlanes = 2\n";
    const auto good = run_here({"check-config", file, "--socket", socket(), "--state", folder()});
    EXPECT_EQ(good.code, ExitCode::kOk);
    EXPECT_THAT(good.out, HasSubstr("lanes = 2"));
    EXPECT_THAT(good.out, HasSubstr("path = \"" + socket() + "\""));
    std::ofstream(file) << "[network]\nlanse = 2\n";
    const auto bad = run_here({"check-config", file});
    EXPECT_EQ(bad.code, ExitCode::kFailed);
    EXPECT_EQ(bad.out, "");
    EXPECT_THAT(bad.error, StartsWith(file + ":2: unknown key 'lanse' in [network]"));
}
TEST_F(CliTest, Check_config_refuses_nodes_without_keys_and_without_plain_text) {
    const auto file = folder() + "/c.toml";
    const std::string nodes =
        "[[node]]\nname = \"a\"\naddress = \"127.0.0.1\"\n[[node]]\nname = \"b\"\naddress = \"192.0.2.8\"\n";
    std::ofstream(file) << nodes;
    const auto bad = run_here({"check-config", file, "--node", "a"});
    EXPECT_EQ(bad.code, ExitCode::kFailed);
    EXPECT_THAT(bad.error, HasSubstr("run 'gradsieve keygen' on each node"));
    EXPECT_THAT(bad.error, HasSubstr("or set security = \"plain\" in [network]"));
    std::ofstream(file) << "[network]\nsecurity = \"plain\"\n" << nodes;
    EXPECT_EQ(run_here({"check-config", file, "--node", "a", "--socket", socket(), "--state", folder()}).code,
              ExitCode::kOk);
}
TEST_F(CliTest, Codecs_lists_every_stage_of_the_table) {
    const auto text = run_here({"codecs"});
    EXPECT_EQ(text.code, ExitCode::kOk);
    for (const auto* stage : {"variance(", "topk(", "pow2(", "rice", "auto"}) EXPECT_THAT(text.out, HasSubstr(stage));
    EXPECT_THAT(text.out, HasSubstr("combine: gather; majority with none"));
    const auto json = run_here({"codecs", "--json"}).out;
    EXPECT_THAT(json, StartsWith("[\n  {\n    \"name\": "));
    EXPECT_THAT(json, HasSubstr("\"combine\": \"gather\""));
}
TEST_F(CliTest, Metrics_are_printed_whatever_the_health_is) {
    const auto absent = run_here({"metrics", "--socket", socket()});
    EXPECT_EQ(absent.code, ExitCode::kOk) << absent.error;
    EXPECT_THAT(absent.out, HasSubstr("gradsieve_up 0\n"));
    const auto page = make_page(R"({"format":1,"daemon":{"version":"1","uptime_s":2.5}})");
    const auto live = run_here({"metrics", "--socket", socket()});
    EXPECT_EQ(live.code, ExitCode::kOk) << live.error;
    EXPECT_THAT(live.out, HasSubstr("gradsieve_up 1\n"));
    EXPECT_THAT(live.out, HasSubstr("gradsieve_uptime_seconds 2.5\n"));
}
TEST_F(CliTest, Metrics_of_a_document_that_is_none_say_unreadable) {
    const auto page = make_page("[]");
    const auto ran = run_here({"metrics", "--socket", socket()});
    EXPECT_EQ(ran.code, ExitCode::kOk);
    EXPECT_THAT(ran.out, HasSubstr("gradsieve_up 0\n"));
    EXPECT_THAT(ran.out, HasSubstr("gradsieve_health{state=\"unreadable\"} 1\n"));
    EXPECT_THAT(ran.error, HasSubstr("not a JSON object"));
}
TEST_F(CliTest, Metrics_replace_a_file_as_a_whole_or_leave_it) {
    const auto file = folder() + "/gradsieve.prom";
    std::ofstream(file) << "old";
    const auto page = make_page(R"({"format":1})");
    EXPECT_EQ(run_here({"metrics", "--socket", socket(), "-o", file}).code, ExitCode::kOk);
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    EXPECT_THAT(text.str(), testing::EndsWith("# EOF\n"));
    EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms(0644));
    const auto bad = run_here({"metrics", "--socket", socket(), "-o", folder() + "/none/gradsieve.prom"});
    EXPECT_EQ(bad.code, ExitCode::kFailed);
    EXPECT_THAT(bad.error, HasSubstr("none/gradsieve.prom: open: No such file or directory"));
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder()))
        if (entry.path().filename().string().starts_with("gradsieve.prom")) ++files;
    EXPECT_EQ(files, 1U) << "nothing is left beside it";
}
TEST_F(CliTest, Codecs_explains_a_codec) {
    const auto ran = run_here({"codecs", "explain", "topk(0.01) | pow2(bits=4)", "--elements", "2k"});
    EXPECT_EQ(ran.code, ExitCode::kOk) << ran.error;
    EXPECT_THAT(ran.out, StartsWith("topk(ratio=0.01, scope=tensor, gate=0) | pow2(bits=4, scope=tile) | auto\n"));
    EXPECT_THAT(ran.out, HasSubstr("2,000 elements"));
    EXPECT_THAT(run_here({"codecs", "explain", "all | bf16", "--json"}).out,
                StartsWith("{\n  \"codec\": \"all | bf16"));
    const auto bad = run_here({"codecs", "explain", "topk(2)"});
    EXPECT_EQ(bad.code, ExitCode::kFailed);
    EXPECT_THAT(bad.error, HasSubstr("ratio"));
    EXPECT_THAT(run_here({"codecs", "explain", "all; *.bias: all | f32"}).error,
                HasSubstr("has 1 rules for some tensors"));
    EXPECT_EQ(run_here({"codecs", "explain", "all", "--elements", "0"}).code, ExitCode::kFailed);
    EXPECT_EQ(run_here({"codecs", "explain"}).code, ExitCode::kFailed);
}
TEST_F(CliTest, Doctor_fails_without_a_daemon_and_lists_its_checks) {
    const auto ran = run_here({"doctor", "--socket", socket()});
    EXPECT_EQ(ran.code, ExitCode::kFailed);
    for (const auto* subject :
         {"configuration", "daemon", "socket", "versions", "shared memory", "locked memory", "memory", "processor"})
        EXPECT_THAT(ran.out, HasSubstr(subject));
}
TEST_F(CliTest, Doctor_is_content_with_a_live_daemon) {
    const auto page = make_page(R"({"format":1,"daemon":{"version":")" GRADSIEVE_VERSION R"("}})");
    const auto listener = shm::LocalListener::make({.path = socket(), .mode = 0660, .group = ""});
    ASSERT_TRUE(listener.is_ok());
    const auto file = folder() + "/c.toml";
    std::ofstream(file) << "";
    const auto ran = run_here({"doctor", file, "--socket", socket()});
    EXPECT_EQ(ran.code, ExitCode::kOk) << ran.out;
    EXPECT_THAT(ran.out, HasSubstr(", 0 failed\n"));
}

}  // namespace
}  // namespace gradsieve::cli

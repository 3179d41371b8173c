// gradsieve state list: reads the folder alone, names what is damaged.
#include "cli/commands.hpp"
#include "daemon/pinned_snapshots.hpp"
#include "tests/cli/cli_fixture.hpp"
#include "tests/shm/state_testing.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace gradsieve::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void save(const std::string& folder, Step step) {
    auto state = shm::StateSegment::make("test", shm::small_table()).value();
    state.set_ranks(std::vector<Rank>{0, 1, 5});
    state.commit(0, step);
    const auto committed = daemon::committed_group(state, 0, state.committed(0));
    const auto status = daemon::write_snapshot(folder, committed.head, committed.arrays);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
}

TEST_F(CliTest, State_list_of_an_empty_folder_says_how_to_have_some) {
    const auto ran = run_here({"state", "list", "--state", folder() + "/nothing"});
    EXPECT_EQ(ran.code, ExitCode::kOk);
    EXPECT_EQ(ran.out, "no snapshots in " + folder() +
                           "/nothing: set snapshot_steps in [state] to have some made, or ask for "
                           "one: gradsieve state save JOB\n");
}
TEST_F(CliTest, State_list_shows_each_snapshot_newest_first) {
    save(folder() + "/state", 40);
    save(folder() + "/state", 50);
    const auto ran = run_here({"state", "list", "--state", folder() + "/state"});
    EXPECT_EQ(ran.code, ExitCode::kOk) << ran.error;
    EXPECT_THAT(ran.out, AllOf(HasSubstr("resnet"), HasSubstr("seven"), HasSubstr("0-1, 5 of 70"), HasSubstr("ago")));
    EXPECT_LT(ran.out.find(" 50 "), ran.out.find(" 40 ")) << ran.out;
    const auto list = nlohmann::json::parse(run_here({"state", "list", "--json", "--state", folder() + "/state"}).out);
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0]["step"], 50);
    EXPECT_EQ(list[1]["bytes"], 1200 + 1200 + 8000);
    EXPECT_EQ(list[1]["ranks"], nlohmann::json::parse("[0, 1, 5]"));
}
TEST_F(CliTest, State_list_tells_pinned_ones_from_those_by_interval) {
    save(folder() + "/state", 40);
    save(folder() + "/state", 50);
    ASSERT_TRUE(daemon::pin_snapshot(folder() + "/state", {"resnet", "seven"}, 0, 40).is_ok());
    const auto ran = run_here({"state", "list", "--state", folder() + "/state"});
    EXPECT_THAT(ran.out, AllOf(HasSubstr("PINNED"), HasSubstr("yes")));
    const auto list = nlohmann::json::parse(run_here({"state", "list", "--json", "--state", folder() + "/state"}).out);
    ASSERT_EQ(list.size(), 3U);
    EXPECT_EQ(list[0]["pinned"], false);
    EXPECT_EQ(list[1]["step"], 40);
    EXPECT_EQ(list[1]["pinned"], true);
    EXPECT_EQ(list[1]["digest"], list[2]["digest"]) << "one file under two names";
    EXPECT_EQ(list[1]["digest"].get<std::string>().size(), 16U);
}
TEST_F(CliTest, State_changes_without_a_daemon_say_what_is_missing) {
    const auto socket = folder() + "/nowhere.sock";
    const auto said = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--socket", socket});
        const auto ran = run_here(arguments);
        EXPECT_EQ(ran.code, ExitCode::kFailed) << ran.out;
        return ran.error;
    };
    EXPECT_THAT(said({"state", "save"}), HasSubstr("no job is named"));
    EXPECT_THAT(said({"state", "save", "resnet"}), HasSubstr("the daemon tells of no run of that name"));
    EXPECT_THAT(said({"state", "save", "resnet", "--run", "1"}), HasSubstr(socket));
    EXPECT_THAT(said({"state", "load", "resnet", "--run", "1"}), HasSubstr("neither --step nor --file"));
    EXPECT_THAT(said({"state", "load", "resnet", "--run", "1", "--file", folder() + "/none"}), HasSubstr("none"));
    EXPECT_THAT(said({"state", "release", "resnet", "--run", "1"}), HasSubstr("--all-steps"));
}
TEST_F(CliTest, State_list_names_a_damaged_file_and_fails) {
    save(folder() + "/state", 40);
    const auto bad = folder() + "/state/0123456789abcdef-0-9.snapshot";
    std::ofstream(bad) << "nonsense";
    const auto ran = run_here({"state", "list", "--state", folder() + "/state"});
    EXPECT_EQ(ran.code, ExitCode::kFailed);
    EXPECT_THAT(ran.out, HasSubstr("resnet"));
    EXPECT_THAT(ran.error, HasSubstr("snapshot " + bad + ": it ends early"));
}
TEST_F(CliTest, State_without_or_with_an_unknown_action_is_wrong_usage) {
    EXPECT_EQ(run_here({"state"}).code, ExitCode::kFailed);
    EXPECT_EQ(run_here({"state", "burn"}).code, ExitCode::kFailed);
}

}  // namespace
}  // namespace gradsieve::cli

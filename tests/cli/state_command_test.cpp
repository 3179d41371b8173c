// gradsieve state list: reads the folder alone, names what is damaged.
#include "cli/commands.hpp"
#include "daemon/snapshot_file.hpp"
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
    EXPECT_EQ(ran.out, "no snapshots in " + folder() + "/nothing: set snapshot_steps in [state] to have some made\n");
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

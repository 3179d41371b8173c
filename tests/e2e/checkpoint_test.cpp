// Checkpoints: snapshots on request, on every node, and runs that go on from one with the bits of a run that was not
// interrupted.
#include "tests/e2e/training.hpp"

#include <unistd.h>
#include <filesystem>
#include <fstream>

namespace gradsieve::e2e {
namespace {

constexpr std::uint64_t kSaved = 40;
using Paths = std::vector<std::filesystem::path>;
using Options = std::vector<std::string>;

std::string configuration(const std::string& state = "") {
    return "[network]\nheartbeat_ms = 100\nsilent_ms = 2000\n[state]\n" + state;
}
Paths files(const Training& run, std::size_t node, const std::string& extension, const std::string& part = "") {
    Paths found;
    for (const auto& entry : std::filesystem::directory_iterator(run.cluster.state_folder(node)))
        if (entry.path().extension() == extension && contains(entry.path().filename().string(), part))
            found.push_back(entry.path());
    return found;
}
Paths pinned(const Training& run, std::size_t node, std::uint64_t step) {
    return files(run, node, ".pinned", "-" + std::to_string(step) + ".");
}
/// Another life of all ranks: to the last step, unless `more` says otherwise.
void start_all(Training& run, const Options& more) {
    run.ranks.clear();
    for (std::size_t index = 0; index < kWorld; ++index) run.ranks.push_back(run.rank(index, more));
}
void expect_all_end_well(Training& run) {
    for (auto& rank : run.ranks) EXPECT_EQ(rank.wait_for_exit(Milliseconds(60'000)), 0) << run.text();
}
/// Up to step 60, with a checkpoint of step 40 that rank 0 asks for, and all ranks leave in good order.
void train_and_leave(Training& run, const Options& more = {}) {
    for (std::size_t index = 0; index < kWorld; ++index) {
        Options options{"--steps", "60", "--hold", "0"};
        if (index == 0) options.insert(options.end(), {"--save-at", std::to_string(kSaved)});
        options.insert(options.end(), more.begin(), more.end());
        run.ranks.push_back(run.rank(index, options));
    }
    expect_all_end_well(run);
    for (const char* group : {"saved  40 ab ", "saved two 40 ab "})
        EXPECT_TRUE(contains(run.ranks[0].output(), group)) << run.text();
}
/// From step 41 on, what an uninterrupted run gives.
void resume_and_compare(Training& run, const Options& more = {}) {
    Options options{"--resume", std::to_string(kSaved), "--hold", "0"};
    options.insert(options.end(), more.begin(), more.end());
    start_all(run, options);
    expect_all_end_well(run);
    for (const auto& rank : run.ranks) {
        EXPECT_TRUE(contains(rank.output(), "started 41\n")) << run.text();
        const auto seen = averages_of(rank);
        EXPECT_EQ(seen.size(), 2 * (kSteps - kSaved)) << "two groups\n" << run.text();
        for (const auto& [step, digest] : seen) EXPECT_EQ(digest, uninterrupted().at(step)) << step;
    }
}
/// No rank starts, and each is told why.
void expect_no_start(Training& run, const std::vector<std::string>& words, const Options& more = {}) {
    Options options{"--resume", std::to_string(kSaved), "--once", "1"};
    options.insert(options.end(), more.begin(), more.end());
    start_all(run, options);
    for (auto& rank : run.ranks) {
        EXPECT_EQ(rank.wait_for_exit(Milliseconds(60'000)), 2) << run.text();
        for (const auto& word : words) EXPECT_TRUE(contains(rank.output(), word)) << word << "\n" << run.text();
    }
}

TEST(Checkpoint, A_run_goes_on_from_one_with_the_same_bits_though_all_ranks_had_left) {
    Training run(true, configuration());
    train_and_leave(run);
    for (std::size_t node = 0; node < 2; ++node) EXPECT_EQ(pinned(run, node, kSaved).size(), 2U) << "one of each group";
    resume_and_compare(run);
    for (std::size_t node = 0; node < 2; ++node)
        EXPECT_EQ(pinned(run, node, kSaved).size(), 2U) << "it stays, and may be gone on from again";
}
TEST(Checkpoint, It_survives_the_loss_of_all_memory_and_snapshots_by_interval) {
    Training run(true, configuration("snapshot_steps = 10\n"));
    train_and_leave(run);
    for (std::size_t node = 0; node < 2; ++node)
        ASSERT_TRUE(run.cluster.wait_for_status(node, [](const auto& json) { return json["jobs"].empty(); }));
    for (std::size_t node = 0; node < 2; ++node) run.cluster.kill_daemon(node);
    for (std::size_t node = 0; node < 2; ++node) run.cluster.manager(node).forget();
    for (std::size_t node = 0; node < 2; ++node) {
        EXPECT_TRUE(files(run, node, ".snapshot").empty()) << "those by interval ended with the run";
        run.cluster.restart_daemon(node);
    }
    resume_and_compare(run);
}
TEST(Checkpoint, Ranks_that_were_killed_later_go_back_to_it_and_leave_the_other_line_of_steps) {
    Training run(true, configuration("snapshot_steps = 10\n"));
    run.compute_ms = 5;
    for (std::size_t index = 0; index < kWorld; ++index)
        run.ranks.push_back(run.rank(index, {"--save-at", std::to_string(kSaved)}));
    run.wait_for_step(3, 65);
    for (auto& rank : run.ranks) rank.send_signal(SIGKILL);
    for (auto& rank : run.ranks) ASSERT_TRUE(rank.wait_for_exit());
    for (const auto& rank : run.ranks) EXPECT_TRUE(contains(rank.output(), "saved two 40 ab ")) << "each may ask";
    run.compute_ms = 1;
    resume_and_compare(run);
}
TEST(Checkpoint, Without_a_name_it_is_not_gone_on_from) {
    Training run(true, configuration());
    train_and_leave(run);
    start_all(run, {"--hold", "0"});
    for (auto& rank : run.ranks) EXPECT_EQ(rank.wait_for_line("started "), "1") << run.text();
    expect_all_end_well(run);
}
TEST(Checkpoint, A_node_that_lacks_it_is_named_with_what_it_has_and_no_rank_starts) {
    for (std::size_t lacking = 0; lacking < 2; ++lacking) {
        Training run(true, configuration());
        train_and_leave(run, {"--save-again-at", "50"});
        for (const auto& path : pinned(run, lacking, kSaved)) std::filesystem::remove(path);
        expect_no_start(run, {"not-found", "step 40 of group ''",
                              std::string("node ") + "ab"[lacking] + " has no snapshot", "it has step 50"});
    }
}
TEST(Checkpoint, A_torn_file_is_refused_and_named) {
    Training run(true, configuration());
    train_and_leave(run);
    const auto torn = pinned(run, 1, kSaved).front();
    std::filesystem::resize_file(torn, std::filesystem::file_size(torn) - 100);
    expect_no_start(run, {"node b has no snapshot"});
    EXPECT_TRUE(contains(run.daemon_output(1), torn.filename().string())) << run.text();
    EXPECT_TRUE(std::filesystem::exists(torn)) << "it is the user's";
}
TEST(Checkpoint, Values_that_changed_on_the_disk_are_refused_and_the_file_is_named_to_every_rank) {
    Training run(true, configuration());
    train_and_leave(run);
    const auto changed = pinned(run, 1, kSaved).front();
    {
        std::fstream file(changed, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-50, std::ios::end);
        file.put('x');
    }
    expect_no_start(run, {"checksum differs", changed.filename().string()});
}
TEST(Checkpoint, One_of_another_run_of_the_step_is_told_by_its_digest) {
    Training run(true, configuration());
    train_and_leave(run);
    expect_no_start(run, {"has no snapshot"}, {"--digest", "12345"});
    EXPECT_TRUE(contains(run.daemon_output(0), "its values are others than those that the checkpoint names"))
        << run.text();
}
TEST(Checkpoint, Its_bytes_can_be_carried_to_other_nodes) {
    Training run(true, configuration());
    const auto file = run.cluster.folder() + "/checkpoint";
    for (std::size_t index = 0; index < kWorld; ++index)
        run.ranks.push_back(run.rank(index, {"--steps", "60", "--hold", "0", "--save-at", std::to_string(kSaved),
                                             "--export", file + std::to_string(index / 2)}));
    expect_all_end_well(run);
    for (std::size_t node = 0; node < 2; ++node)
        for (const auto& path : pinned(run, node, kSaved)) std::filesystem::remove(path);
    run.ranks.clear();
    for (std::size_t index = 0; index < kWorld; ++index)
        run.ranks.push_back(run.rank(
            index, {"--hold", "0", "--resume", std::to_string(kSaved), "--import", file + std::to_string(index / 2)}));
    expect_all_end_well(run);
    for (const auto& rank : run.ranks)
        for (const auto& [step, digest] : averages_of(rank)) EXPECT_EQ(digest, uninterrupted().at(step)) << step;
}
TEST(Checkpoint, Older_ones_go_once_a_newer_one_is_complete_on_every_node) {
    Training run(true, configuration("snapshot_steps = 10\npinned_snapshots = 1\n"));
    train_and_leave(run, {"--save-again-at", "55"});
    for (std::size_t node = 0; node < 2; ++node) {
        EXPECT_EQ(pinned(run, node, 55).size(), 2U) << run.text();
        EXPECT_TRUE(run.cluster.wait_for_status(node, [&](const auto&) { return pinned(run, node, kSaved).empty(); }))
            << run.text();
    }
}
TEST(Checkpoint, Beyond_the_budget_it_is_refused_naming_the_node_and_training_goes_on) {
    Training run(true, configuration("pinned_limit_mib = 1\n"));
    std::filesystem::resize_file(
        [&] {
            const auto path = run.cluster.state_folder(1) + "/0123456789abcdef-0-1.pinned";
            std::ofstream(path) << "somebody else's";
            return path;
        }(),
        2U << 20U);
    for (std::size_t index = 0; index < kWorld; ++index)
        run.ranks.push_back(run.rank(index, {"--steps", "60", "--hold", "0", "--save-at", std::to_string(kSaved)}));
    expect_all_end_well(run);
    EXPECT_TRUE(contains(run.ranks[0].output(), "unsaved  resource-exhausted: ")) << run.text();
    EXPECT_TRUE(contains(run.ranks[0].output(), "node b: ")) << run.text();
    EXPECT_TRUE(contains(run.ranks[0].output(), "pinned_limit_mib")) << run.text();
}

TEST(Checkpoint, The_tool_saves_a_running_job_and_chooses_the_step_of_its_next_start_on_one_node_for_all) {
    Training run(true, configuration());
    run.compute_ms = 10;
    const auto tool = [&](std::size_t node, Options arguments) {
        arguments.insert(arguments.begin(), {E2E_TOOL, "state"});
        if (arguments[2] != "list") arguments.insert(arguments.end(), {"--socket", run.cluster.socket(node)});
        return e2e::run(arguments);
    };
    for (std::size_t index = 0; index < kWorld; ++index)
        run.ranks.push_back(run.rank(index, {"--steps", "80", "--hold", "0"}));
    run.wait_for_step(0, 20);
    ASSERT_TRUE(run.cluster.wait_for_status(1, [](const auto& json) { return !json["jobs"].empty(); }));
    const auto saved = tool(1, {"save", "survivor", "--json"});
    ASSERT_EQ(saved.code, 0) << saved.output;
    std::map<std::string, std::uint64_t> steps;
    const auto list = nlohmann::json::parse(saved.output);
    ASSERT_EQ(list.size(), 4U) << "two groups on two nodes\n" << saved.output;
    for (const auto& part : list) steps[part["group"]] = part["step"];
    expect_all_end_well(run);
    const auto listed = tool(0, {"list", "--state", run.cluster.state_folder(0)});
    EXPECT_TRUE(contains(listed.output, "yes")) << listed.output;
    const auto lacking = tool(0, {"load", "survivor", "--run", "one", "--step", "3"});
    EXPECT_EQ(lacking.code, 1);
    EXPECT_TRUE(
        contains(lacking.output, "no pinned snapshot of step 3 lies here: there is step " + std::to_string(steps[""])))
        << lacking.output;
    for (const auto& [group, step] : steps) {
        const auto chosen =
            tool(0, {"load", "survivor", "--run", "one", "--group", group, "--step", std::to_string(step)});
        EXPECT_EQ(chosen.code, 0) << chosen.output;
    }
    run.compute_ms = 1;
    start_all(run, {"--hold", "0"});
    expect_all_end_well(run);
    const auto first = "started " + std::to_string(std::min(steps[""], steps["two"]) + 1) + "\n";
    for (const auto& rank : run.ranks) {
        EXPECT_TRUE(contains(rank.output(), first)) << run.text();
        for (const auto& [step, digest] : averages_of(rank)) EXPECT_EQ(digest, uninterrupted().at(step)) << step;
    }
    start_all(run, {"--hold", "0"});
    for (auto& rank : run.ranks) EXPECT_EQ(rank.wait_for_line("started "), "1") << "the choice was for one start alone";
    expect_all_end_well(run);
    EXPECT_EQ(tool(0, {"release", "survivor", "--run", "one", "--all-steps"}).code, 0);
    EXPECT_TRUE(files(run, 0, ".pinned").empty());
    EXPECT_EQ(files(run, 1, ".pinned").size(), 2U) << "each node's are its own";
}
TEST(Checkpoint, Another_user_may_not_touch_it) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be two users";
    Training run(true, configuration("[socket]\nmode = \"0666\"\n"));
    train_and_leave(run);
    std::filesystem::permissions(run.cluster.folder(), std::filesystem::perms::others_exec,
                                 std::filesystem::perm_options::add);
    for (const Options& action : {Options{"release", "--all-steps"}, Options{"load", "--step", "40"}}) {
        auto arguments = as_user(65534);
        arguments.insert(arguments.end(),
                         {E2E_TOOL, "state", action[0], "survivor", "--run", "one", "--socket", run.cluster.socket(0)});
        arguments.insert(arguments.end(), action.begin() + 1, action.end());
        const auto ran = e2e::run(arguments);
        EXPECT_EQ(ran.code, 1) << ran.output;
        EXPECT_TRUE(contains(ran.output, "is another user's")) << ran.output;
    }
    EXPECT_EQ(pinned(run, 0, kSaved).size(), 2U);
}

}  // namespace
}  // namespace gradsieve::e2e

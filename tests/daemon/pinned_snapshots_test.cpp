// Pinned snapshots: names, budgets, ages, files from outside, and the choice of a step.
#include "daemon/pinned_snapshots.hpp"

#include "exchange/job_machine.hpp"
#include "shm/sealed_message.hpp"
#include "tests/shm/shm_test_support.hpp"
#include "tests/shm/state_testing.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <fstream>

namespace gradsieve::daemon {
namespace {

using testing::HasSubstr;

class PinnedSnapshots : public testing::Test {
protected:
    PinnedSnapshots() {
        state.set_ranks(std::vector<Rank>{2, 65});
        std::filesystem::create_directories(folder());
    }
    [[nodiscard]] std::string folder() const { return folder_ / "state"; }
    SnapshotHead head_of(Step step) {
        state.commit(0, step);
        return committed_group(state, 0, step).head;
    }
    void pin(Step step, std::uint64_t age_days = 0) {
        auto head = head_of(step);
        head.saved_unix_s -= age_days * 86'400;
        const auto committed = committed_group(state, 0, step);
        ASSERT_TRUE(write_snapshot_as(folder(), pinned_name(key, 0, step), head, committed.arrays).is_ok());
    }
    void save_by_interval(Step step) {
        state.commit(0, step);
        const auto committed = committed_group(state, 0, step);
        ASSERT_TRUE(write_snapshot(folder(), committed.head, committed.arrays).is_ok());
    }
    std::vector<Step> pinned() const {
        std::vector<Step> steps;
        for (const auto& found : find_pinned(folder(), key)) steps.push_back(found.head.is_ok() ? found.head->step : 0);
        return steps;
    }
    /// The file's bytes in a memfd, as they come over the socket.
    UniqueFd sealed(const std::string& name) const {
        std::ifstream file(folder() + "/" + name, std::ios::binary);
        const std::string text((std::istreambuf_iterator<char>(file)), {});
        return shm::seal_message(as_bytes(text)).value();
    }

    const exchange::JobKey key{"resnet", "seven"};
    shm::StateSegment state = shm::StateSegment::make("test", shm::small_table()).value();
    shm::TempFolder folder_;
};

TEST_F(PinnedSnapshots, Do_not_count_among_those_by_interval_and_these_do_not_count_among_them) {
    save_by_interval(10);
    pin(20);
    EXPECT_EQ(find_snapshots(folder(), key).size(), 1U);
    EXPECT_EQ(pinned(), std::vector<Step>{20});
    remove_snapshots(folder(), key, 0);
    EXPECT_TRUE(find_snapshots(folder(), key).empty());
    EXPECT_EQ(pinned(), std::vector<Step>{20}) << "a clean end removes those by interval alone";
}
TEST_F(PinnedSnapshots, Of_one_step_are_one_file_under_two_names) {
    save_by_interval(10);
    ASSERT_TRUE(pin_snapshot(folder(), key, 0, 10).is_ok());
    ASSERT_TRUE(pin_snapshot(folder(), key, 0, 10).is_ok()) << "again";
    const auto path = folder() + "/" + pinned_name(key, 0, 10);
    EXPECT_EQ(std::filesystem::hard_link_count(path), 2U);
    remove_snapshots(folder(), key, 0);
    EXPECT_TRUE(read_snapshot_head(path).is_ok());
    ASSERT_TRUE(add_interval_name(folder(), key, 0, 10).is_ok());
    EXPECT_EQ(find_snapshots(folder(), key).size(), 1U);
    EXPECT_EQ(pin_snapshot(folder(), key, 0, 11).code(), StatusCode::kNotFound);
    remove_snapshot_leftovers(folder());
    EXPECT_EQ(pinned(), std::vector<Step>{10});
}
TEST_F(PinnedSnapshots, Older_ones_go_when_one_is_complete_and_newer_ones_stay) {
    for (const Step step : {10, 20, 30, 40}) pin(step);
    remove_older_pinned(folder(), key, 1, 40, 1);
    EXPECT_EQ(pinned().size(), 4U) << "another group's";
    remove_older_pinned(folder(), key, 0, 30, 2);
    EXPECT_EQ(pinned(), (std::vector<Step>{40, 30, 20})) << "40 is not complete yet";
}
TEST_F(PinnedSnapshots, A_budget_and_a_limit_of_files_refuse_one_more_with_the_figures) {
    const PinnedLimits limits{.kept = 2, .limit_bytes = 1U << 20U, .keep_days = 0};
    pin(10);
    EXPECT_TRUE(check_pinned_room(folder(), key, 0, 1000, limits).is_ok());
    const auto status = check_pinned_room(folder(), key, 0, 1U << 20U, limits);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.text(), HasSubstr("1 MiB beside 1 MiB"));
    EXPECT_THAT(status.text(), HasSubstr("state.pinned_limit_mib"));
    for (Step step = 11; step < 10 + kPinnedLimit; ++step) pin(step);
    const auto full = check_pinned_room(folder(), key, 0, 0, {});
    EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(full.text(), HasSubstr("16 pinned snapshots"));
    EXPECT_TRUE(check_pinned_room(folder(), key, 1, 0, {}).is_ok()) << "another group's";
}
TEST_F(PinnedSnapshots, Age_takes_those_that_are_older_alone) {
    pin(10, 9);
    pin(20, 3);
    EXPECT_TRUE(remove_aged_pinned(folder(), 0).empty());
    EXPECT_EQ(remove_aged_pinned(folder(), 5).size(), 1U);
    EXPECT_EQ(pinned(), std::vector<Step>{20});
}
TEST_F(PinnedSnapshots, A_file_from_outside_is_checked_and_becomes_the_callers) {
    pin(10);
    const auto name = pinned_name(key, 0, 10);
    const auto before = read_snapshot_head(folder() + "/" + name);
    const auto file = sealed(name);
    std::filesystem::remove(folder() + "/" + name);
    const auto taken = take_in_pinned(folder(), file.get(), key, 4711, {});
    ASSERT_TRUE(taken.is_ok()) << taken.error().to_string();
    const auto after = read_snapshot_head(folder() + "/" + name);
    ASSERT_TRUE(after.is_ok()) << after.error().to_string();
    EXPECT_EQ(after->table.owner, 4711U);
    EXPECT_EQ(after->digest, before->digest);
    EXPECT_EQ(after->ranks, before->ranks);
}
TEST_F(PinnedSnapshots, Another_jobs_a_torn_or_an_unsealed_file_is_not_taken_in) {
    pin(10);
    const auto name = pinned_name(key, 0, 10);
    EXPECT_THAT(
        take_in_pinned(folder(), sealed(name).get(), {"resnet", "eight"}, 1, {}).status().text(),
        HasSubstr(
            "a snapshot of job 'resnet', run 'seven' was handed over: allowed is one of job 'resnet', run 'eight'"));
    const UniqueFd open(::open((folder() + "/" + name).c_str(), O_RDONLY));
    EXPECT_EQ(take_in_pinned(folder(), open.get(), key, 1, {}).status().code(), StatusCode::kInvalidArgument);
    std::filesystem::resize_file(folder() + "/" + name, std::filesystem::file_size(folder() + "/" + name) - 1);
    EXPECT_EQ(take_in_pinned(folder(), sealed(name).get(), key, 1, {}).status().code(), StatusCode::kCorrupt);
    EXPECT_EQ(take_in_pinned(folder(), shm::seal_message({}).value().get(), key, 1, {}).status().code(),
              StatusCode::kCorrupt);
}
TEST_F(PinnedSnapshots, A_changed_byte_of_the_values_is_refused) {
    pin(10);
    const auto path = folder() + "/" + pinned_name(key, 0, 10);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-20, std::ios::end);
    file.put('x');
    file.close();
    const auto status = take_in_pinned(folder(), sealed(pinned_name(key, 0, 10)).get(), key, 1, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.text(), HasSubstr("values whose checksum differs"));
}
TEST_F(PinnedSnapshots, A_choice_of_steps_comes_back_and_goes) {
    const ResumeChoice choice{{"", 40}, {"two", 7}};
    ASSERT_TRUE(write_resume_choice(folder(), key, choice).is_ok());
    EXPECT_EQ(read_resume_choice(folder(), key), choice);
    EXPECT_TRUE(read_resume_choice(folder(), {"resnet", "eight"}).empty());
    ASSERT_TRUE(write_resume_choice(folder(), key, {}).is_ok());
    EXPECT_TRUE(read_resume_choice(folder(), key).empty());
    EXPECT_TRUE(write_resume_choice(folder(), key, {}).is_ok()) << "none is there";
    for (const char* text : {"x\t\n", "12", "0\t\n", "99999999999999999999\t\n"}) {
        std::ofstream(folder() + "/" + snapshot_prefix(key) + "choice") << text;
        EXPECT_TRUE(read_resume_choice(folder(), key).empty()) << text;
    }
}

}  // namespace
}  // namespace gradsieve::daemon

// The state of a job survives its daemon: what is committed, and what a kill leaves at every moment.
#include "shm/state_segment.hpp"

#include "tests/shm/shm_test_support.hpp"
#include "tests/shm/state_testing.hpp"

#include <sys/mman.h>
#include <sys/ptrace.h>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>

namespace gradsieve::shm {
namespace {

StateSegment make_small() { return StateSegment::make("state-test", small_table()).value(); }
Result<StateSegment> reopened(const StateSegment& state) { return StateSegment::adopt(duplicate(state.fd())); }

/// One step of group 0 as a job does it: every array of the generation that is not live becomes `step`.
void take_step(StateSegment& state, Step step) {
    const auto live = state.generation(0, 1).is_valid && state.generation(0, 1).stamp == state.committed(0) ? 1U : 0U;
    for (std::size_t tensor = 0; tensor < 2; ++tensor) {
        state.invalidate(tensor, 1 - live);
        for (const auto& array : state.table().tensors[tensor].arrays)
            std::fill_n(state.values(array, 1 - live), array.bytes / sizeof(float), static_cast<float>(step));
        state.finish(tensor, 1 - live, step, 0.5);
    }
    state.commit(0, step);
}
/// Every value of what group 0 goes on from, if it is one and the same.
std::optional<float> value_at(StateSegment& state, Step step) {
    std::optional<float> value;
    for (std::size_t tensor = 0; tensor < 2; ++tensor) {
        std::optional<std::size_t> chosen;
        for (std::size_t index = 0; index < 2; ++index) {
            const auto seen = state.generation(tensor, index);
            if (seen.is_valid && seen.stamp == step) chosen = index;
        }
        if (!chosen) return std::nullopt;
        for (const auto& array : state.table().tensors[tensor].arrays)
            for (std::size_t element = 0; element < array.bytes / sizeof(float); ++element) {
                const auto seen = state.values(array, *chosen)[element];
                if (value && *value != seen) return std::nullopt;
                value = seen;
            }
    }
    return value;
}

TEST(StateSegment, A_fresh_one_is_zeros_with_nothing_to_go_on_from) {
    auto state = make_small();
    EXPECT_FALSE(state.has_committed());
    EXPECT_EQ(state.steps(0).newest, 0U);
    EXPECT_EQ(value_at(state, 0), 0.0F);
    EXPECT_TRUE(state.ranks().empty());
    EXPECT_TRUE(reopened(state).is_ok()) << reopened(state).error().to_string();
}
TEST(StateSegment, Another_owner_finds_table_ranks_steps_and_values_again) {
    auto state = make_small();
    state.set_ranks(std::vector<Rank>{0, 63, 64, 69});
    for (Step step = 1; step <= 5; ++step) take_step(state, step);
    auto again = reopened(state);
    ASSERT_TRUE(again.is_ok()) << again.error().to_string();
    EXPECT_EQ(again->table().job_name, "resnet");
    EXPECT_EQ(again->ranks(), (std::vector<Rank>{0, 63, 64, 69}));
    EXPECT_EQ(again->steps(0).newest, 5U);
    EXPECT_EQ(again->steps(0).older, 4U);
    EXPECT_EQ(again->steps(1).newest, 0U) << "the other group has not stepped";
    EXPECT_EQ(value_at(*again, 5), 5.0F);
    EXPECT_EQ(value_at(*again, 4), 4.0F);
    EXPECT_EQ(again->generation(0, 0).scale, 0.5);
}
TEST(StateSegment, A_step_that_is_taken_back_leaves_the_one_before) {
    auto state = make_small();
    state.set_ranks(std::vector<Rank>{0});
    for (Step step = 1; step <= 5; ++step) take_step(state, step);
    take_step(state, 6);
    state.roll_back(0, 5);
    EXPECT_EQ(state.steps(0).newest, 5U);
    EXPECT_EQ(state.steps(0).older, 0U) << "step 4 has been overwritten";
    EXPECT_EQ(value_at(state, 5), 5.0F);
}
TEST(StateSegment, A_tensor_that_a_step_did_not_touch_keeps_what_it_has) {
    auto state = make_small();
    state.set_ranks(std::vector<Rank>{0});
    for (Step step = 1; step <= 5; ++step) take_step(state, step);
    const auto other = state.generation(0, 0).stamp == 5 ? 1U : 0U;
    state.invalidate(1, other);  // its pass failed, and the policy counts that as zeros
    state.invalidate(0, other);
    state.finish(0, other, 6, 0.5);
    state.commit(0, 6);
    auto again = reopened(state);
    ASSERT_TRUE(again.is_ok()) << again.error().to_string();
    EXPECT_EQ(again->steps(0).newest, 6U);
    EXPECT_EQ(again->steps(0).older, 5U) << "tensor b still has it, and tensor a has not overwritten it";
    again->roll_back(0, 5);
    EXPECT_EQ(value_at(*again, 5), 5.0F);
}
TEST(StateSegment, Half_an_overwritten_generation_is_nothing_to_go_back_to) {
    auto state = make_small();
    state.set_ranks(std::vector<Rank>{0});
    for (Step step = 1; step <= 5; ++step) take_step(state, step);
    ASSERT_EQ(state.steps(0).older, 4U);
    const auto old = state.generation(0, 0).stamp == 4 ? 0U : 1U;
    state.invalidate(0, old);
    EXPECT_EQ(state.steps(0).newest, 5U);
    EXPECT_EQ(state.steps(0).older, 0U);
}
TEST(StateSegment, Rolling_back_makes_the_older_step_the_newest) {
    auto state = make_small();
    state.set_ranks(std::vector<Rank>{0});
    for (Step step = 1; step <= 5; ++step) take_step(state, step);
    state.roll_back(0, 4);
    EXPECT_EQ(state.steps(0).newest, 4U);
    EXPECT_EQ(state.steps(0).older, 0U);
    ASSERT_TRUE(reopened(state).is_ok());
    take_step(state, 5);
    EXPECT_EQ(state.steps(0).newest, 5U);
    EXPECT_EQ(state.steps(0).older, 4U);
    EXPECT_EQ(value_at(state, 5), 5.0F);
}
TEST(StateSegment, Clearing_a_group_gives_zeros_that_cost_memory_as_before) {
    auto state = make_small();
    state.set_ranks(std::vector<Rank>{0});
    for (Step step = 1; step <= 3; ++step) take_step(state, step);
    state.commit(1, 9);
    struct stat before {};
    ASSERT_EQ(::fstat(state.fd(), &before), 0);
    ASSERT_TRUE(state.clear(0).is_ok());
    EXPECT_EQ(value_at(state, 0), 0.0F);
    EXPECT_EQ(state.steps(0).newest, 0U);
    EXPECT_EQ(state.committed(1), 9U) << "another group's step stays";
    struct stat after {};
    ASSERT_EQ(::fstat(state.fd(), &after), 0);
    EXPECT_EQ(after.st_blocks, before.st_blocks) << "committed: no later store can fail";
}
TEST(StateSegment, Words_that_no_run_leaves_behind_are_refused_by_name) {
    const auto refused = [](const std::function<void(StateSegment&, std::byte*)>& spoil, const std::string& part) {
        auto state = make_small();
        state.set_ranks(std::vector<Rank>{0});
        for (Step step = 1; step <= 3; ++step) take_step(state, step);
        auto raw = Segment::adopt(duplicate(state.fd()), state.size_bytes(), Access::kReadWrite, true).value();
        spoil(state, raw.bytes().data());
        const auto status = reopened(state).status();
        EXPECT_EQ(status.code(), StatusCode::kCorrupt) << part;
        EXPECT_NE(status.text().find(part), std::string::npos) << status.text();
    };
    const auto words = [] {
        auto table = small_table();
        return lay_out_state(table).value().words_offset;
    }();
    const auto poke = [](std::byte* base, std::uint64_t offset, std::uint64_t value) {
        std::memcpy(base + offset, &value, sizeof(value));
    };
    const auto generation = words + 8 * (2 + 4);  // behind two words of ranks and two groups' steps
    refused([](auto& state, auto*) { state.commit(0, ~Step{0}); }, "allowed is at most 2^62");
    refused([](auto& state, auto*) { state.invalidate(1, 0), state.invalidate(1, 1); },
            "tensor 'b' has no array of it");
    refused([](auto& state, auto*) { state.set_ranks({}); }, "without ranks");
    refused([&](auto&, auto* base) { poke(base, words + 8, std::uint64_t{1} << 6U); }, "a rank beyond the world");
    refused([&](auto&, auto* base) { poke(base, generation + 8, 2); }, "validity 2: allowed is 0 or 1");
    refused([&](auto&, auto* base) { poke(base, generation, ~std::uint64_t{0}); }, "tensor 'a' with stamp");
    refused([&](auto&, auto* base) { poke(base, generation + 16, std::bit_cast<std::uint64_t>(-1.0)); },
            "tensor 'a' with scale -1");
    refused(
        [&](auto&, auto* base) {
            poke(base, generation + 16, std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity()));
        },
        "scale inf");
}
TEST(StateSegment, Places_on_gpus_are_found_again_and_replaced) {
    auto state = StateSegment::make("state-test", gpu_table(), 2).value();
    EXPECT_TRUE(state.has_device_arrays());
    EXPECT_TRUE(state.has_device_arrays(0));
    EXPECT_FALSE(state.has_device_arrays(1));
    EXPECT_FALSE(reopened(state)->placement());
    ASSERT_TRUE(state.place(small_placement()).is_ok());
    state.set_ranks(std::vector<Rank>{0});
    for (std::size_t tensor = 0; tensor < 2; ++tensor) state.finish(tensor, 0, 1, 0.5);
    state.commit(0, 1);
    auto again = reopened(state);
    ASSERT_TRUE(again.is_ok()) << again.error().to_string();
    ASSERT_TRUE(again->placement());
    EXPECT_EQ(again->placement()->parts, small_placement().parts);
    EXPECT_EQ(again->placement()->tensors, small_placement().tensors);
    auto other = small_placement();
    other.parts[0].key = 99;
    ASSERT_TRUE(again->place(other).is_ok());
    EXPECT_EQ(reopened(state)->placement()->parts[0].key, 99U);
    ASSERT_TRUE(again->clear(0).is_ok()) << "arrays on GPUs are the caller's";
    EXPECT_EQ(again->steps(0).newest, 0U);
}
TEST(StateSegment, A_committed_group_on_gpus_without_a_place_is_refused) {
    auto state = StateSegment::make("state-test", gpu_table(), 2).value();
    state.set_ranks(std::vector<Rank>{0});
    ASSERT_TRUE(state.place(small_placement()).is_ok());
    state.commit(0, 1);
    ASSERT_TRUE(reopened(state).is_ok());
    state.displace();
    EXPECT_NE(reopened(state).status().text().find("none says where"), std::string::npos);
}
TEST(StateSegment, A_damaged_placement_and_one_without_room_are_refused) {
    auto state = StateSegment::make("state-test", gpu_table(), 2).value();
    ASSERT_TRUE(state.place(small_placement()).is_ok());
    auto raw = Segment::adopt(duplicate(state.fd()), state.size_bytes(), Access::kReadWrite, true).value();
    auto table = gpu_table();
    const auto at = lay_out_state(table, 2).value().placement_offset;
    auto bytes = raw.bytes();
    for (const auto offset : {at, at + 8, at + 16, at + kPlacementHeadBytes, at + kPlacementHeadBytes + 30}) {
        bytes[offset] ^= std::byte{1};
        EXPECT_EQ(reopened(state).status().code(), StatusCode::kCorrupt) << offset - at;
        bytes[offset] ^= std::byte{1};
    }
    EXPECT_TRUE(reopened(state).is_ok());
    auto wide = small_placement();
    wide.parts.resize(40, {std::string(60, 'a'), kDevicePageBytes, 1});
    const auto status = state.place(wide);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.text().find("its places on 40 GPUs"), std::string::npos) << status.text();
}
TEST(StateSegment, Something_that_is_no_state_is_refused) {
    auto other = Segment::make("test", 8192, Sharing::kPrivate).value();
    EXPECT_EQ(StateSegment::adopt(duplicate(other.fd())).status().code(), StatusCode::kCorrupt);
    UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(unsealed.get(), 8192), 0);
    EXPECT_NE(StateSegment::adopt(std::move(unsealed)).status().text().find("seals"), std::string::npos);
    UniqueFd empty(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(StateSegment::adopt(std::move(empty)).status().code(), StatusCode::kCorrupt);
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    UniqueFd in(ends[0]);
    const UniqueFd out(ends[1]);
    EXPECT_EQ(StateSegment::adopt(std::move(in)).status().code(), StatusCode::kCorrupt);
}
TEST(StateSegment, A_copy_in_another_file_is_refused) {
    auto state = make_small();
    auto copy = Segment::make("copy", state.size_bytes(), Sharing::kPrivate).value();
    auto raw = Segment::adopt(duplicate(state.fd()), state.size_bytes(), Access::kReadOnly, true).value();
    std::memcpy(copy.bytes().data(), std::as_const(raw).bytes().data(), state.size_bytes());
    const auto status = StateSegment::adopt(duplicate(copy.fd())).status();
    EXPECT_NE(status.text().find("inode"), std::string::npos) << status.text();
}

/// What a daemon started right now would make of the memory: it must hold exactly `before` or `before` + 1.
::testing::AssertionResult goes_on(const StateSegment& state, Step before) {
    auto again = reopened(state);
    if (!again.is_ok()) return ::testing::AssertionFailure() << again.error().to_string();
    const auto newest = again->steps(0).newest;
    if (newest != before && newest != before + 1) return ::testing::AssertionFailure() << "step " << newest;
    for (const auto step : {newest, again->steps(0).older})
        if (step > 0 && value_at(*again, step) != static_cast<float>(step))
            return ::testing::AssertionFailure() << "mixed values at step " << step;
    return ::testing::AssertionSuccess();
}

TEST(StateSegment, A_kill_between_any_two_instructions_leaves_the_old_or_the_new_step) {
    auto table = small_table();
    table.tensors[0].elements = 3;  // few stores of values: each instruction is looked at
    table.tensors[1].elements = 5;
    for (auto& tensor : table.tensors)
        for (auto& array : tensor.arrays) array.bytes = tensor.elements * sizeof(float);
    auto state = StateSegment::make("state-test", table).value();
    state.set_ranks(std::vector<Rank>{0});
    for (Step step = 1; step <= 6; ++step) take_step(state, step);
    Child child([&] {
        if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return 3;
        ::raise(SIGSTOP);
        take_step(state, 7);
        state.roll_back(0, 6);
        take_step(state, 7);
        return 0;
    });
    int status = 0;
    ASSERT_EQ(::waitpid(child.pid(), &status, 0), child.pid());
    if (WIFEXITED(status)) {
        child.forget();
        GTEST_SKIP() << "ptrace is not allowed here";
    }
    std::size_t instructions = 0, looks = 0;
    Bytes seen;
    const auto raw = Segment::adopt(duplicate(state.fd()), state.size_bytes(), Access::kReadOnly, true).value();
    while (true) {
        const auto bytes = raw.bytes();
        if (seen.size() != bytes.size() || std::memcmp(seen.data(), bytes.data(), bytes.size()) != 0) {
            seen.assign(bytes.begin(), bytes.end());
            ++looks;
            ASSERT_TRUE(goes_on(state, 6)) << "after instruction " << instructions;
        }
        if (::ptrace(PTRACE_SINGLESTEP, child.pid(), nullptr, nullptr) != 0) break;
        if (::waitpid(child.pid(), &status, 0) != child.pid() || WIFEXITED(status) || WIFSIGNALED(status)) break;
        ++instructions;
    }
    child.forget();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_GT(looks, 20U) << instructions << " instructions";
    EXPECT_EQ(state.steps(0).newest, 7U);
}
TEST(StateSegment, Children_killed_at_random_moments_leave_a_whole_step) {
    auto state = make_small();
    state.set_ranks(std::vector<Rank>{0});
    for (int round = 0; round < 40; ++round) {
        Child child([&] {
            for (Step step = state.committed(0) + 1;; ++step) take_step(state, step);
            return 0;
        });
        const auto begin = state.committed(0);
        while (state.committed(0) < begin + 3) {}  // it is under way; how far is the scheduler's dice
        child.kill_now();
        static_cast<void>(child.wait_status());
        auto again = reopened(state);
        ASSERT_TRUE(again.is_ok()) << again.error().to_string();
        const auto steps = again->steps(0);
        EXPECT_EQ(value_at(*again, steps.newest), static_cast<float>(steps.newest));
        if (steps.older > 0) {
            EXPECT_EQ(value_at(*again, steps.older), static_cast<float>(steps.older));
        }
        state = std::move(*again);
    }
}

}  // namespace
}  // namespace gradsieve::shm

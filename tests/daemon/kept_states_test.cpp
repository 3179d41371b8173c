// What is kept of jobs that do not run: taken by its own job only, within budget, number and time.
#include "daemon/kept_states.hpp"

#include "daemon/gpu_pool.hpp"
#include "daemon/service.hpp"
#include "tests/daemon/daemon_testing.hpp"
#include "tests/shm/state_testing.hpp"

#include <sys/eventfd.h>
#include <sys/mman.h>

namespace gradsieve::daemon::test {
namespace {

using namespace std::chrono_literals;

class KeptStatesTest : public testing::Test {
protected:
    KeptStatesTest() { budget.limit_bytes = ByteCount{64} << 20U; }
    /// As a job leaves it: one step is committed, its bytes are in the budget.
    shm::StateSegment state_of(const std::string& run) {
        auto table = shm::small_table();
        table.run_id = run;
        auto state = shm::StateSegment::make("test", std::move(table)).value();
        state.set_ranks(std::vector<Rank>{0});
        state.commit(0, 5);
        return state;
    }
    void keep(const std::string& run) {
        auto state = state_of(run);
        EXPECT_TRUE(budget.take(state.size_bytes(), "test").is_ok());
        kept.keep({std::move(state)}, "rank 3 died", now);
    }
    static HandedDescriptor parked(const shm::StateSegment& state, const std::string& name = "") {
        const exchange::JobKey key{state.table().job_name, state.table().run_id};
        return {name.empty() ? parked_name(key) : name, shm::duplicate(state.fd())};
    }
    /// Hands one descriptor over; what became of it is in `kept` and `lines`.
    void adopt(HandedDescriptor descriptor) {
        std::vector<HandedDescriptor> handed;
        handed.push_back(std::move(descriptor));
        kept.adopt(std::move(handed), now);
    }

    TimePoint now{100h};
    LogLines lines;
    MemoryBudget budget;
    KeptStates kept{budget, lines.log()};
};

TEST_F(KeptStatesTest, A_job_gets_its_own_state_once_and_no_other_run_does) {
    keep("one");
    keep("two");
    EXPECT_FALSE(kept.take({"resnet", "three"}));
    EXPECT_FALSE(kept.take({"other", "one"}));
    EXPECT_EQ(kept.owner_of({"resnet", "two"}), 1000U);
    const auto state = kept.take({"resnet", "two"});
    ASSERT_TRUE(state);
    EXPECT_EQ(state->segment.committed(0), 5U);
    EXPECT_FALSE(kept.take({"resnet", "two"}));
    EXPECT_EQ(kept.all().size(), 1U);
}
TEST_F(KeptStatesTest, The_oldest_makes_room_and_its_bytes_come_back) {
    keep("one");
    const auto each = budget.used_bytes;
    keep("two");
    budget.limit_bytes = 2 * each + 100;
    budget.make_room = [&] { return kept.drop_oldest("its memory is needed for a job that runs"); };
    EXPECT_TRUE(budget.take(each, "a job's state").is_ok());
    EXPECT_EQ(budget.used_bytes, 2 * each);
    EXPECT_FALSE(kept.take({"resnet", "one"}));
    ASSERT_EQ(kept.lost().size(), 1U);
    EXPECT_EQ(kept.lost()[0].text, "its memory is needed for a job that runs");
    EXPECT_TRUE(kept.take({"resnet", "two"}));
}
TEST_F(KeptStatesTest, A_demand_beyond_the_limit_costs_nobody_anything) {
    keep("one");
    budget.make_room = [&] { return kept.drop_oldest("room"); };
    EXPECT_EQ(budget.take(budget.limit_bytes + 1, "too much").code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(kept.all().size(), 1U);
}
TEST_F(KeptStatesTest, Time_drops_what_nobody_took) {
    keep("one");
    now += 30min;
    keep("two");
    kept.on_time(1h, now + 29min);
    EXPECT_EQ(kept.all().size(), 2U);
    kept.on_time(1h, now + 30min);
    ASSERT_EQ(kept.all().size(), 1U);
    EXPECT_EQ(kept.all()[0].state.segment.table().run_id, "two");
    EXPECT_EQ(kept.lost()[0].text, "no run of the job took it within 60 minutes (state.keep_minutes)");
}
TEST_F(KeptStatesTest, No_more_than_the_limit_are_kept) {
    for (std::size_t index = 0; index <= kKeptStatesLimit; ++index) keep("run " + std::to_string(index));
    EXPECT_EQ(kept.all().size(), kKeptStatesLimit);
    EXPECT_FALSE(kept.owner_of({"resnet", "run 0"}));
}
TEST_F(KeptStatesTest, What_an_earlier_daemon_parked_is_taken_up_and_counts_in_the_budget) {
    const auto state = state_of("one");
    adopt(parked(state));
    ASSERT_EQ(kept.all().size(), 1U);
    EXPECT_EQ(budget.used_bytes, state.size_bytes());
    EXPECT_TRUE(lines.has("state found again"));
    EXPECT_EQ(kept.take({"resnet", "one"})->segment.committed(0), 5U);
}
TEST_F(KeptStatesTest, Whatever_is_stale_is_refused_by_name) {
    const auto refused = [&](HandedDescriptor descriptor, const std::string& part) {
        const auto before = kept.all().size();
        adopt(std::move(descriptor));
        EXPECT_EQ(kept.all().size(), before) << part;
        ASSERT_FALSE(kept.lost().empty()) << part;
        EXPECT_THAT(kept.lost()[0].text, testing::HasSubstr(part));
        EXPECT_TRUE(lines.has(part)) << part;
    };
    const auto state = state_of("one");
    refused(parked(state, "gradsieve-state-0000000000000001-0"), "state of job 'resnet' under this name: allowed is ");
    refused({"gradsieve-state-0-0", UniqueFd(::memfd_create("empty", MFD_CLOEXEC))}, "not shared memory");
    auto fresh = state_of("nothing");
    fresh.commit(0, 0);
    refused(parked(fresh), "no step was committed");
    adopt(parked(state));
    refused(parked(state), "a second state of job 'resnet'");
    const auto large = state_of("large");
    budget.limit_bytes = budget.used_bytes + 1;
    refused(parked(large), "raise daemon.memory_limit_mib");
}
TEST_F(KeptStatesTest, Names_are_what_a_service_manager_takes) {
    const auto name = parked_name({"a:b\n", "run"}, 3);
    EXPECT_TRUE(is_parked_name(name));
    EXPECT_EQ(name.size(), 16 + 16 + 2U);
    for (const char character : name)
        EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(character)) || character == '-');
    EXPECT_FALSE(is_parked_name("gradsieved.socket"));
}

/// With a state on GPUs, of a daemon that was killed.
class KeptStatesOnGpusTest : public KeptStatesTest {
protected:
    shm::StateSegment gpu_state_of(const std::string& run, const std::string& gpu) {
        auto table = shm::gpu_table();
        table.run_id = run;
        const std::vector<std::string> names = {gpu};
        const std::vector<std::vector<codec::cuda::DeviceRange>> none(3);
        auto placement = place_on_devices(table, names, none, 5);
        auto state = shm::StateSegment::make("test", std::move(table), 1).value();
        EXPECT_TRUE(state.place(std::move(placement)).is_ok());
        state.set_ranks(std::vector<Rank>{0});
        state.commit(0, 5);
        return state;
    }
    static HandedDescriptor part_of(const shm::StateSegment& state, int fd) {
        return {parked_name({state.table().job_name, state.table().run_id}, *state.placement(), 0), shm::duplicate(fd)};
    }
    void adopt_both(const shm::StateSegment& state, int part, KeptStates& states) {
        std::vector<HandedDescriptor> handed;
        handed.push_back(part_of(state, part));  // in whatever order
        handed.push_back(parked(state));
        states.adopt(std::move(handed), now);
    }
    UniqueFd memory{::memfd_create("no device memory", MFD_CLOEXEC)};
    UniqueFd bell{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    WakeFlag wake{bell.get()};
    GpuPool gpus{wake};
    KeptStates on_gpus{budget, lines.log(), &gpus};
};

TEST_F(KeptStatesOnGpusTest, A_part_that_was_not_handed_over_is_named_and_nothing_is_taken) {
    const auto state = gpu_state_of("one", "GPU-aa");
    adopt(parked(state));
    EXPECT_TRUE(kept.all().empty());
    ASSERT_FALSE(kept.lost().empty());
    EXPECT_THAT(kept.lost()[0].text, testing::HasSubstr("part 1 of 1, on GPU GPU-aa, was not handed over"));
    EXPECT_EQ(budget.used_bytes, 0U);
}
TEST_F(KeptStatesOnGpusTest, A_part_without_its_state_is_let_go) {
    const auto state = gpu_state_of("one", "GPU-aa");
    adopt(part_of(state, memory.get()));
    EXPECT_TRUE(kept.all().empty());
    EXPECT_TRUE(lines.has("no kept state needs it"));
}
TEST_F(KeptStatesOnGpusTest, A_gpu_that_is_not_there_is_named) {
    if (!codec::cuda::list_devices().is_ok()) GTEST_SKIP() << "no GPU";
    adopt_both(gpu_state_of("one", "GPU-nowhere"), memory.get(), on_gpus);
    EXPECT_TRUE(on_gpus.all().empty());
    ASSERT_FALSE(on_gpus.lost().empty());
    EXPECT_THAT(on_gpus.lost()[0].text, testing::HasSubstr("kept state on GPU GPU-nowhere: this daemon sees GPU-"));
    EXPECT_EQ(budget.used_bytes, 0U);
}
TEST_F(KeptStatesOnGpusTest, Other_memory_under_the_name_is_found_by_the_gpus_thread_and_given_up) {
    const auto devices = codec::cuda::list_devices();
    if (!devices.is_ok()) GTEST_SKIP() << "no GPU";
    adopt_both(gpu_state_of("one", devices->front().uuid), memory.get(), on_gpus);
    ASSERT_EQ(on_gpus.all().size(), 1U);
    EXPECT_TRUE(on_gpus.is_checking({"resnet", "one"}));
    const std::vector<GpuClaim> all = {{devices->front().ordinal, devices->front().uuid, shm::kDevicePageBytes}};
    EXPECT_FALSE(gpus.ledger().take_state(all, 2 * shm::kDevicePageBytes - 1).is_ok()) << "it counts";
    ASSERT_TRUE(wait_until([&] { return gpus.has_done(); }));
    for (const auto& worker : gpus.workers())
        for (auto& task : worker->take_done())
            if (task.state_check) on_gpus.on_checked(*task.state_check, now);
    EXPECT_TRUE(on_gpus.all().empty());
    EXPECT_FALSE(on_gpus.is_checking({"resnet", "one"}));
    ASSERT_FALSE(on_gpus.lost().empty());
    EXPECT_THAT(on_gpus.lost()[0].text, testing::HasSubstr("kept state on GPU " + devices->front().uuid));
    EXPECT_TRUE(gpus.ledger().take_state(all, shm::kDevicePageBytes).is_ok()) << "what it counted is free";
    EXPECT_EQ(budget.used_bytes, 0U);
}
TEST_F(KeptStatesOnGpusTest, The_oldest_on_a_gpu_makes_room_there_and_those_elsewhere_stay) {
    keep("host");
    for (const auto* run : {"one", "two"}) {
        auto state = gpu_state_of(run, "GPU-aa");
        EXPECT_TRUE(budget.take(state.size_bytes(), "test").is_ok());
        EXPECT_TRUE(gpus.ledger().take_state(claims_of(*state.placement(), std::vector<int>{1}), 0).is_ok());
        DeviceParts parts;
        parts.descriptors.push_back(shm::duplicate(memory.get()));
        parts.ordinals = {1};
        on_gpus.keep({std::move(state), std::move(parts)}, "rank 3 died", now);
    }
    EXPECT_FALSE(on_gpus.drop_oldest_on(std::vector<int>{0, 2}, "room"));
    EXPECT_TRUE(on_gpus.drop_oldest_on(std::vector<int>{0, 1}, "room"));
    EXPECT_FALSE(on_gpus.owner_of({"resnet", "one"}));
    EXPECT_TRUE(on_gpus.owner_of({"resnet", "two"}));
    const std::vector<GpuClaim> rest = {{1, "GPU-aa", shm::kDevicePageBytes}};
    EXPECT_TRUE(gpus.ledger().take_state(rest, 2 * shm::kDevicePageBytes).is_ok());
    EXPECT_FALSE(gpus.ledger().take_state(rest, 2 * shm::kDevicePageBytes).is_ok());
    EXPECT_EQ(kept.all().size(), 1U);
}
TEST_F(KeptStatesOnGpusTest, Descriptors_are_bounded_with_the_states) {
    for (std::size_t index = 0; index < 30; ++index) {
        auto state = gpu_state_of("run " + std::to_string(index), "GPU-aa");
        EXPECT_TRUE(budget.take(state.size_bytes(), "test").is_ok());
        DeviceParts parts;
        for (int part = 0; part < 15; ++part) parts.descriptors.push_back(shm::duplicate(memory.get()));
        on_gpus.keep({std::move(state), std::move(parts)}, "rank 3 died", now);
    }
    EXPECT_EQ(on_gpus.all().size(), kKeptDescriptorsLimit / 16);
    EXPECT_FALSE(on_gpus.owner_of({"resnet", "run 0"}));
}

}  // namespace
}  // namespace gradsieve::daemon::test

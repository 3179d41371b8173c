// What is kept of jobs that do not run: taken by its own job only, within budget, number and time.
#include "daemon/kept_states.hpp"

#include "daemon/service.hpp"
#include "tests/daemon/daemon_testing.hpp"
#include "tests/shm/state_testing.hpp"

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
        kept.keep(std::move(state), "rank 3 died", now);
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
    EXPECT_EQ(state->committed(0), 5U);
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
    EXPECT_EQ(kept.all()[0].state.table().run_id, "two");
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
    EXPECT_EQ(kept.take({"resnet", "one"})->committed(0), 5U);
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

}  // namespace
}  // namespace gradsieve::daemon::test

// The recorder of one job's steps, with a clock that the test turns.
#include "daemon/job_trace.hpp"

#include <gmock/gmock.h>

namespace gradsieve::daemon::test {
namespace {

using namespace std::chrono_literals;
using shm::TraceEventKind;
using ::testing::HasSubstr;

TraceExtent two_groups() {
    return {.group_of = {0, 0, 1}, .elements = {10, kChunkElements + 1, 7}, .groups = 2, .local_ranks = 2, .peers = 1};
}

class JobTraceTest : public ::testing::Test {
protected:
    JobTrace make(std::uint32_t steps, std::size_t capacity = 100, std::vector<Step> first_steps = {3, 1}) {
        return {{.session_id = 7, .number = 9, .steps = steps, .deadline = clock.now() + 1min, .timeout = 1min},
                two_groups(),
                std::move(first_steps),
                capacity,
                clock};
    }
    static std::vector<shm::TraceEvent> events_of(JobTrace& trace) {
        shm::TraceReply reply;
        trace.take_into(reply);
        return reply.events;
    }

    ManualClock clock;
};

TEST_F(JobTraceTest, Step_that_was_under_way_is_left_out) {
    auto trace = make(1);
    trace.on_hand_in(0, 2, 0);
    trace.on_step_ended(0, 2, true);
    EXPECT_EQ(trace.steps_ended(), 0U);
    trace.on_hand_in(0, 3, 1);
    const auto events = events_of(trace);
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].kind, TraceEventKind::kHandIn);
    EXPECT_EQ(events[0].step, 3U);
    EXPECT_EQ(events[0].who, 1U);
    EXPECT_EQ(events[0].time_ns, clock.now().time_since_epoch().count());
}
TEST_F(JobTraceTest, Steps_of_all_groups_count_and_no_other_is_recorded) {
    auto trace = make(2);
    trace.on_hand_in(2, 1, 0);
    trace.on_hand_in(0, 3, 0);
    trace.on_step_ended(1, 1, true);
    trace.on_hand_in(2, 2, 0);  // the third step
    trace.on_step_ended(1, 2, true);
    EXPECT_FALSE(trace.is_complete(clock.now()));
    trace.on_step_ended(0, 3, false);
    trace.on_handed_back(0, 3);  // the last results are told after the step's end
    EXPECT_TRUE(trace.is_complete(clock.now()));
    const auto events = events_of(trace);
    ASSERT_EQ(events.size(), 5U);
    EXPECT_EQ(events[2].kind, TraceEventKind::kStepCommitted);
    EXPECT_EQ(events[3].kind, TraceEventKind::kStepFailed);
    EXPECT_EQ(events[4].kind, TraceEventKind::kHandedBack);
}
TEST_F(JobTraceTest, Waits_a_moment_for_word_of_frames_that_leave) {
    auto trace = make(1);
    trace.on_record_out(0, 3, 1, 4);
    trace.on_record_out(1, 3, 1, 5);
    trace.on_step_ended(0, 3, true);
    EXPECT_FALSE(trace.is_complete(clock.now()));
    trace.on_frame_sent(4, clock.now());
    trace.on_frame_sent(6, clock.now());  // of a step that is not recorded
    EXPECT_FALSE(trace.is_complete(clock.now()));
    EXPECT_TRUE(trace.is_complete(clock.now() + 1s)) << "not for ever";
    trace.on_frame_sent(5, clock.now());
    EXPECT_TRUE(trace.is_complete(clock.now()));
    EXPECT_EQ(events_of(trace).size(), 5U);
}
TEST_F(JobTraceTest, Records_begin_when_their_frame_arrived) {
    auto trace = make(1);
    const auto arrived = clock.now();
    trace.set_arrival(arrived);
    clock.advance(3us);
    trace.on_record_in(1, 3, 1, true, false);
    trace.on_record_in(1, 3, 1, false, false);
    trace.on_record_in(1, 3, 1, false, true);
    const auto events = events_of(trace);
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[0].kind, TraceEventKind::kFirstRecord);
    EXPECT_EQ(events[0].time_ns, arrived.time_since_epoch().count());
    EXPECT_EQ(events[0].until_ns, clock.now().time_since_epoch().count());
    EXPECT_EQ(events[1].kind, TraceEventKind::kLastRecord);
}
TEST_F(JobTraceTest, Never_takes_more_memory_and_counts_what_found_no_room) {
    auto trace = make(3, 4);
    for (Rank rank = 0; rank < 10; ++rank) trace.on_hand_in(0, 3, rank);
    shm::TraceReply reply;
    trace.take_into(reply);
    EXPECT_EQ(reply.events.size(), 4U);
    EXPECT_EQ(reply.events_lost, 6U);
}
TEST_F(JobTraceTest, Room_holds_all_events_of_the_steps) {
    const auto capacity = two_groups().capacity(1).value();
    auto trace = make(2, capacity);
    for (const exchange::TensorNumber tensor : {0U, 1U, 2U}) {
        const Step step = tensor == 2 ? 1 : 3;
        for (const Rank rank : {0U, 1U}) trace.on_hand_in(tensor, step, rank);
        trace.on_encode_asked(tensor, step);
        trace.on_encoded(tensor, step, clock.now(), clock.now(), 5);
        for (std::uint64_t chunk = 0; chunk < (tensor == 1 ? 2U : 1U); ++chunk) {
            trace.on_record_out(tensor, step, 1, 1 + 2 * tensor + chunk);
            trace.on_frame_sent(1 + 2 * tensor + chunk, clock.now());
        }
        trace.on_record_in(tensor, step, 1, true, true);
        trace.on_decode_asked(tensor, step);
        trace.on_decoded(tensor, step, clock.now(), clock.now());
        trace.on_handed_back(tensor, step);
    }
    trace.on_step_ended(0, 3, true);
    trace.on_step_ended(1, 1, true);
    shm::TraceReply reply;
    trace.take_into(reply);
    EXPECT_EQ(reply.events_lost, 0U);
    EXPECT_LE(reply.events.size(), capacity);
    EXPECT_GE(reply.events.size() + reply.events.size() / 4 + 64, capacity) << "and not much more";
}
TEST(TraceExtentTest, More_than_a_trace_holds_is_refused_with_what_it_does_hold) {
    TraceExtent extent{.group_of = std::vector<exchange::GroupNumber>(1000, 0),
                       .elements = std::vector<ElementCount>(1000, 100),
                       .groups = 1,
                       .local_ranks = 8,
                       .peers = 1};
    const auto refused = extent.capacity(1000);
    ASSERT_FALSE(refused.is_ok());
    EXPECT_EQ(refused.error().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(refused.error().text(),
                HasSubstr("1000 steps of 1000 tensors: a trace holds 500000 events, which are "));
    const auto text = refused.error().text();
    const auto fitting = std::stoul(text.substr(text.find("which are ") + 10));
    EXPECT_TRUE(extent.capacity(static_cast<std::uint32_t>(fitting)).is_ok()) << text;
    EXPECT_FALSE(extent.capacity(static_cast<std::uint32_t>(fitting + 1)).is_ok()) << text;
    extent.elements.assign(1000, kChunkElements * 4096);  // not even one step
    EXPECT_THAT(extent.capacity(1).error().text(), HasSubstr("which are 0 steps"));
}

}  // namespace
}  // namespace gradsieve::daemon::test

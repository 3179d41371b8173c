#include "transport/fault_transport.hpp"

#include "transport/loopback_transport.hpp"
#include "transport_testing.hpp"

#include <algorithm>
#include <bit>

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers
using std::chrono::milliseconds;

constexpr std::uint64_t kFrames = 2000;
constexpr double kFarOff = 120;  // more than five standard deviations of 2000 draws at one in four

class FaultTest : public ::testing::Test {
protected:
    void start(const FaultPlan& plan) {
        sender_ = make_fault_transport(network_.make_endpoint(0), plan, clock_);
        receiver_.transport = network_.make_endpoint(1);
    }
    void send_all() {
        for (std::uint64_t number = 0; number < kFrames; ++number) {
            ASSERT_TRUE(sender_->send(1, Lane::kData, make_frame(20, number, {make_body(40, number)})).is_ok());
        }
    }
    void receive() { ASSERT_TRUE(receiver_.transport->poll(Duration::zero(), receiver_.inbox).is_ok()); }
    [[nodiscard]] std::vector<std::uint64_t> steps() const {
        std::vector<std::uint64_t> seen;
        for (const auto& frame : receiver_.inbox.frames) seen.push_back(frame.header.step);
        return seen;
    }

    ManualClock clock_;
    LoopbackNetwork network_{2, clock_};
    std::unique_ptr<FaultTransport> sender_;
    Node receiver_;
};

TEST_F(FaultTest, Dropped_frames_are_missing_and_counted) {
    start({.seed = 1, .drop = 0.25});
    send_all();
    receive();
    const auto counts = sender_->fault_counts();
    EXPECT_EQ(counts.frames, kFrames);
    EXPECT_EQ(receiver_.inbox.frames.size(), kFrames - counts.dropped);
    EXPECT_NEAR(static_cast<double>(counts.dropped), kFrames / 4.0, kFarOff);
}
TEST_F(FaultTest, Repeated_frames_come_twice_and_are_counted) {
    start({.seed = 2, .repeat = 0.25});
    send_all();
    receive();
    const auto counts = sender_->fault_counts();
    EXPECT_EQ(receiver_.inbox.frames.size(), kFrames + counts.repeated);
    EXPECT_NEAR(static_cast<double>(counts.repeated), kFrames / 4.0, kFarOff);
    const auto seen = steps();
    EXPECT_TRUE(std::ranges::is_sorted(seen));
}
TEST_F(FaultTest, Corrupted_frames_differ_in_one_bit_and_are_counted) {
    start({.seed = 3, .corrupt = 0.25});
    send_all();
    receive();
    std::uint64_t damaged = 0;
    for (const auto& frame : receiver_.inbox.frames) {
        const auto expected = make_body(40, frame.header.step);
        int bits = 0;
        for (std::size_t place = 0; place < 40; ++place) {
            bits += std::popcount(static_cast<unsigned>(frame.body.bytes()[place] ^ expected.bytes()[place]));
        }
        EXPECT_LE(bits, 1);
        damaged += static_cast<std::uint64_t>(bits);
    }
    EXPECT_EQ(damaged, sender_->fault_counts().corrupted);
    EXPECT_NEAR(static_cast<double>(damaged), kFrames / 4.0, kFarOff);
}
TEST_F(FaultTest, Corruption_leaves_the_callers_bytes_alone_and_an_empty_body_empty) {
    start({.seed = 4, .corrupt = 1});
    const auto body = make_body("shared with other peers");
    ASSERT_TRUE(sender_->send(1, Lane::kData, make_frame(20, 1, {body})).is_ok());
    ASSERT_TRUE(sender_->send(1, Lane::kData, make_frame(20, 2)).is_ok());
    receive();
    EXPECT_EQ(text_of(body), "shared with other peers");
    EXPECT_NE(text_of(receiver_.inbox.frames.at(0).body), text_of(body));
    EXPECT_EQ(receiver_.inbox.frames.at(1).body.bytes().size(), 0U);
    EXPECT_EQ(sender_->fault_counts().corrupted, 1U);
}
TEST_F(FaultTest, Delayed_frames_come_behind_later_ones_when_their_time_is_over) {
    start({.seed = 5, .delay = 0.25, .delay_by = milliseconds(50)});
    send_all();
    receive();
    const auto counts = sender_->fault_counts();
    EXPECT_EQ(receiver_.inbox.frames.size(), kFrames - counts.delayed);
    EXPECT_EQ(counts.held, counts.delayed);
    EXPECT_NEAR(static_cast<double>(counts.delayed), kFrames / 4.0, kFarOff);
    Inbox inbox;
    clock_.advance(milliseconds(49));
    ASSERT_TRUE(sender_->poll(Duration::zero(), inbox).is_ok());
    EXPECT_EQ(sender_->fault_counts().held, counts.delayed);
    clock_.advance(milliseconds(1));
    ASSERT_TRUE(sender_->poll(Duration::zero(), inbox).is_ok());
    EXPECT_EQ(sender_->fault_counts().held, 0U);
    receive();
    auto seen = steps();
    EXPECT_EQ(seen.size(), kFrames);
    EXPECT_FALSE(std::ranges::is_sorted(seen));
    std::ranges::sort(seen);
    for (std::uint64_t number = 0; number < kFrames; ++number) EXPECT_EQ(seen[number], number) << "every frame once";
}
TEST_F(FaultTest, The_same_seed_does_the_same_and_another_something_else) {
    std::vector<std::vector<std::uint64_t>> runs;
    for (const std::uint64_t seed : {6U, 6U, 7U}) {
        start({.seed = seed, .drop = 0.1, .repeat = 0.1});
        receiver_.inbox.clear();
        send_all();
        receive();
        runs.push_back(steps());
    }
    EXPECT_EQ(runs[0], runs[1]);
    EXPECT_NE(runs[0], runs[2]);
}
TEST_F(FaultTest, Certain_and_impossible_faults_are_just_that) {
    start({.seed = 8, .drop = 1});
    send_all();
    EXPECT_EQ(sender_->fault_counts().dropped, kFrames);
    start({.seed = 8});
    send_all();
    const auto counts = sender_->fault_counts();
    EXPECT_EQ(counts.dropped + counts.repeated + counts.corrupted + counts.delayed, 0U);
}
TEST_F(FaultTest, A_late_frame_that_the_inner_transport_refuses_is_counted) {
    start({.seed = 9, .delay = 1});
    ASSERT_TRUE(sender_->send(1, Lane::kData, make_frame(20, 1)).is_ok());
    network_.kill(0);
    clock_.advance(milliseconds(50));
    Inbox inbox;
    EXPECT_EQ(sender_->poll(Duration::zero(), inbox).code(), StatusCode::kUnavailable);
    EXPECT_EQ(sender_->fault_counts().refused_late, 1U);
}

}  // namespace
}  // namespace gradsieve::transport

#include "exchange/link_meter.hpp"

#include <gtest/gtest.h>

namespace gradsieve::exchange {
namespace {

using std::chrono::milliseconds;

TimePoint at(int ms) { return TimePoint{} + milliseconds(1000 + ms); }

TEST(LinkMeter, Knows_nothing_before_the_first_answer) {
    LinkMeter meter;
    meter.settle();
    EXPECT_EQ(meter.seconds_per_byte(), 0);
    meter.on_sent(1, 1000, at(0));
    meter.settle();
    EXPECT_EQ(meter.seconds_per_byte(), 0);
    meter.on_answered(1, 0, at(1));
    meter.on_answered(7, 1000, at(1));
    meter.settle();
    EXPECT_EQ(meter.seconds_per_byte(), 0) << "nobody sent anything there";
}
TEST(LinkMeter, Counts_from_the_first_frame_to_the_last_answer) {
    LinkMeter meter;
    meter.on_sent(1, 1000, at(0));
    meter.on_sent(1, 3000, at(2));
    meter.on_answered(1, 1000, at(5));
    meter.on_answered(1, 3000, at(20));
    meter.settle();
    EXPECT_DOUBLE_EQ(meter.seconds_per_byte(), 0.020 / 4000);
}
TEST(LinkMeter, A_link_without_anything_under_way_is_not_busy) {
    LinkMeter meter;
    meter.on_sent(1, 1000, at(0));
    meter.on_answered(1, 1000, at(4));
    meter.on_sent(1, 1000, at(900));  // gradients that the backward pass had not made before
    meter.on_answered(1, 1000, at(904));
    meter.settle();
    EXPECT_DOUBLE_EQ(meter.seconds_per_byte(), 0.008 / 2000);
}
TEST(LinkMeter, What_is_under_way_when_a_step_ends_belongs_to_the_next) {
    LinkMeter meter;
    meter.on_sent(1, 1000, at(0));
    meter.on_sent(1, 1000, at(0));
    meter.on_answered(1, 1000, at(10));
    meter.settle();
    EXPECT_DOUBLE_EQ(meter.seconds_per_byte(), 0.010 / 1000);
    meter.settle();
    EXPECT_DOUBLE_EQ(meter.seconds_per_byte(), 0.010 / 1000) << "the last that is known";
    meter.on_answered(1, 1000, at(30));
    meter.settle();
    EXPECT_DOUBLE_EQ(meter.seconds_per_byte(), 0.020 / 1000);
}
TEST(LinkMeter, The_best_of_large_bursts_is_remembered_for_a_while) {
    LinkMeter meter;
    EXPECT_EQ(meter.best_seconds_per_byte(), 0);
    const auto burst = [&](ByteCount bytes, int begin, int took) {
        meter.on_sent(1, bytes, at(begin));
        meter.on_answered(1, bytes, at(begin + took));
    };
    burst(10, 0, 1);  // waits for the answer, and says nothing of the link
    EXPECT_DOUBLE_EQ(meter.best_seconds_per_byte(), 0.001 / 10);
    burst(100'000, 10, 9);
    burst(100'000, 30, 30);  // somebody else had the processor
    burst(60'000, 70, 6);
    EXPECT_DOUBLE_EQ(meter.best_seconds_per_byte(), 0.009 / 100'000);
    for (int turn = 0; turn < 32; ++turn) burst(80'000, 100 + 20 * turn, 16);
    EXPECT_DOUBLE_EQ(meter.best_seconds_per_byte(), 0.016 / 80'000) << "the link is slower now";
    meter.on_sent(2, 1000, at(2000));
    meter.on_answered(2, 600, at(2001));
    EXPECT_DOUBLE_EQ(meter.best_seconds_per_byte(), 0.016 / 80'000) << "not answered as a whole yet";
    meter.on_answered(2, 400, at(2003));
    EXPECT_DOUBLE_EQ(meter.best_seconds_per_byte(), 0.003 / 1000);
}
TEST(LinkMeter, The_slowest_peer_counts_and_one_whose_link_was_down_begins_anew) {
    LinkMeter meter;
    meter.on_sent(1, 1000, at(0));
    meter.on_sent(2, 1000, at(0));
    meter.on_answered(1, 1000, at(1));
    meter.on_answered(2, 1000, at(3));
    meter.settle();
    EXPECT_DOUBLE_EQ(meter.seconds_per_byte(), 0.003 / 1000);
    meter.on_sent(2, 1000, at(10));
    meter.forget(2);
    meter.on_answered(2, 1000, at(5000));  // of a life that is over
    meter.on_sent(2, 1000, at(6000));
    meter.on_answered(2, 1000, at(6002));
    meter.settle();
    EXPECT_DOUBLE_EQ(meter.seconds_per_byte(), 0.002 / 1000);
}

}  // namespace
}  // namespace gradsieve::exchange

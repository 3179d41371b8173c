#include "client/collective.hpp"

#include <gmock/gmock.h>

namespace gradsieve::client {
namespace {

using ::testing::HasSubstr;

constexpr Collective::Key kKey{7, 1};

TEST(Collective, Numbers_run_from_one) {
    Collective collective;
    EXPECT_TRUE(collective.check(kKey).value());
    EXPECT_EQ(collective.next_number(), 1U);
    collective.begin(kKey);
    EXPECT_EQ(collective.number(), 1U);
    EXPECT_FALSE(collective.answer_of(1));
    EXPECT_TRUE(collective.on_answer(1, {}));
    EXPECT_TRUE(collective.answer_of(1)->is_ok());
    collective.close(1);
    EXPECT_EQ(collective.next_number(), 2U);
    EXPECT_TRUE(collective.check(kKey).value()) << "after its end the same call begins a new one";
}
TEST(Collective, Open_one_is_continued_by_the_same_key_only) {
    Collective collective;
    collective.begin(kKey);
    EXPECT_FALSE(collective.check(kKey).value());
    const auto other = collective.check({8, 1});
    ASSERT_FALSE(other.is_ok());
    EXPECT_EQ(other.error().code(), StatusCode::kBusy);
    EXPECT_THAT(other.error().text(), HasSubstr("call number 1"));
    EXPECT_FALSE(collective.check({7, 0}).is_ok()) << "another root is another call";
}
TEST(Collective, Late_answer_waits_for_the_repeated_call) {
    Collective collective;
    collective.begin(kKey);
    EXPECT_TRUE(collective.on_answer(1, Status(StatusCode::kMismatch, "rank 3 differs")));
    EXPECT_FALSE(collective.check(kKey).value());
    EXPECT_EQ(collective.answer_of(1)->code(), StatusCode::kMismatch);
}
TEST(Collective, Answers_to_what_is_not_open_are_refused) {
    Collective collective;
    EXPECT_FALSE(collective.on_answer(0, {}));
    EXPECT_FALSE(collective.on_answer(1, {}));
    collective.begin(kKey);
    EXPECT_FALSE(collective.on_answer(2, {}));
    EXPECT_TRUE(collective.on_answer(1, {}));
    EXPECT_FALSE(collective.on_answer(1, {})) << "twice";
    collective.close(1);
    EXPECT_FALSE(collective.on_answer(1, {}));
}
TEST(Collective, Overtaken_call_says_so) {
    Collective collective;
    collective.begin(kKey);
    ASSERT_TRUE(collective.on_answer(1, {}));
    collective.close(1);
    collective.begin(kKey);
    EXPECT_EQ(collective.answer_of(1)->code(), StatusCode::kFailedPrecondition);
    collective.close(1);  // the overtaken caller's: leaves the open one alone
    EXPECT_TRUE(collective.is_open());
}

}  // namespace
}  // namespace gradsieve::client

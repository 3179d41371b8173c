#include "client/ledger.hpp"

#include <gmock/gmock.h>

namespace gradsieve::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Step kFirst = 5;

/// Tensors 0, 1, 2 in group "" and 3, 4 in group "g".
class LedgerTest : public ::testing::Test {
protected:
    LedgerTest() {
        for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(registry_.add(name, {}, {}).is_ok());
        for (const char* name : {"x", "y"}) EXPECT_TRUE(registry_.add(name, {}, {.group = "g"}).is_ok());
        ledger_.emplace(registry_);
    }
    void tell(shm::CompletionKind kind, std::uint32_t index, Step step, const Status& status = {}) {
        shm::Completion completion;
        completion.kind = kind;
        completion.code = status.code();
        completion.index = index;
        completion.step = step;
        completion.set_text(status.text());
        ledger_->on_completion(completion);
    }
    void start() {
        tell(shm::CompletionKind::kStarted, 0, kFirst);
        tell(shm::CompletionKind::kStarted, 3, 1);
    }
    void submit(std::uint32_t index, Step step) {
        const auto checked = ledger_->check_submit(index, step);
        ASSERT_TRUE(checked.is_ok()) << checked.error().to_string();
        ledger_->on_submitted(index, step);
    }
    void expect_senseless() {
        EXPECT_EQ(ledger_->ended().code(), StatusCode::kInternal);
        EXPECT_THAT(ledger_->ended().text(), HasSubstr("makes no sense"));
    }
    Registry registry_;
    std::optional<Ledger> ledger_;
};
using Kind = shm::CompletionKind;

TEST_F(LedgerTest, Runs_once_every_group_started) {
    EXPECT_FALSE(ledger_->is_running());
    tell(Kind::kStarted, 3, 1);
    EXPECT_FALSE(ledger_->is_running());
    tell(Kind::kStarted, 0, kFirst);
    EXPECT_TRUE(ledger_->is_running());
    EXPECT_EQ(ledger_->first_step(0), kFirst);
    EXPECT_EQ(ledger_->first_step(1), 1U);
    EXPECT_FALSE(ledger_->has_ended());
}
TEST_F(LedgerTest, Start_of_what_leads_no_group_ends_the_job) {
    tell(Kind::kStarted, 1, 1);
    expect_senseless();
}
TEST_F(LedgerTest, Start_with_step_zero_ends_the_job) {
    tell(Kind::kStarted, 0, 0);
    expect_senseless();
}
TEST_F(LedgerTest, Second_start_of_a_group_ends_the_job) {
    start();
    tell(Kind::kStarted, 0, kFirst);
    expect_senseless();
}
TEST_F(LedgerTest, Index_beyond_the_tensors_ends_the_job) {
    start();
    tell(Kind::kTensor, 5, kFirst);
    expect_senseless();
}
TEST_F(LedgerTest, Unknown_kind_ends_the_job) {
    tell(static_cast<Kind>(77), 0, 0);
    expect_senseless();
    EXPECT_THAT(ledger_->ended().text(), HasSubstr("kind 77"));
}
TEST_F(LedgerTest, Only_the_open_step_may_be_handed_in) {
    start();
    for (const Step step : {Step{0}, kFirst - 1, kFirst + 1}) {
        const auto checked = ledger_->check_submit(0, step);
        ASSERT_FALSE(checked.is_ok()) << step;
        EXPECT_EQ(checked.error().code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(checked.error().text(),
                    AllOf(HasSubstr("tensor 'a': step " + std::to_string(step)), HasSubstr("allowed is 5")));
    }
    EXPECT_TRUE(ledger_->check_submit(0, kFirst).value());
    EXPECT_TRUE(ledger_->check_submit(3, 1).value()) << "each group counts on its own";
}
TEST_F(LedgerTest, Next_step_is_busy_until_the_open_one_is_settled) {
    start();
    for (const std::uint32_t index : {2U, 0U, 1U}) submit(index, kFirst);
    tell(Kind::kTensor, 0, kFirst);
    EXPECT_TRUE(ledger_->outcome(0)->is_ok());
    EXPECT_EQ(ledger_->check_submit(0, kFirst + 1).error().code(), StatusCode::kBusy);
    EXPECT_TRUE(ledger_->has_open_step(0));
    tell(Kind::kStepDone, 0, kFirst);
    EXPECT_FALSE(ledger_->has_open_step(0));
    EXPECT_TRUE(ledger_->check_submit(0, kFirst + 1).value());
    EXPECT_FALSE(ledger_->outcome(1)) << "committed, but its own result is not there yet";
}
TEST_F(LedgerTest, Same_step_twice_is_refused_and_names_the_next) {
    start();
    submit(0, kFirst);
    const auto again = ledger_->check_submit(0, kFirst).error();
    EXPECT_EQ(again.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(again.text(), AllOf(HasSubstr("was handed in already"), HasSubstr("allowed is 6 once step 5 is done")));
    EXPECT_EQ(ledger_->check_submit(0, kFirst + 2).error().code(), StatusCode::kInvalidArgument);
}
TEST_F(LedgerTest, Failed_step_fails_its_tensors_but_for_those_answered_already) {
    start();
    submit(0, kFirst);
    submit(1, kFirst);
    tell(Kind::kTensor, 0, kFirst);
    tell(Kind::kStepDone, 0, kFirst, {StatusCode::kNonFinite, "NaN in 'b' on rank 1"});
    EXPECT_TRUE(ledger_->outcome(0)->is_ok()) << "its result stands; under skip-step it may be NaN";
    EXPECT_EQ(ledger_->outcome(1)->code(), StatusCode::kNonFinite);
    EXPECT_EQ(ledger_->outcome(1)->text(), "NaN in 'b' on rank 1");
    EXPECT_EQ(ledger_->verdict(0, kFirst)->code(), StatusCode::kNonFinite);
}
TEST_F(LedgerTest, Tensor_late_for_a_failed_step_is_noted_not_sent) {
    start();
    submit(0, kFirst);
    tell(Kind::kStepDone, 0, kFirst, {StatusCode::kStepFailed, "why"});
    const auto checked = ledger_->check_submit(2, kFirst);
    ASSERT_TRUE(checked.is_ok());
    EXPECT_FALSE(*checked);
    ledger_->on_submitted(2, kFirst);
    EXPECT_EQ(ledger_->outcome(2)->code(), StatusCode::kStepFailed);
    EXPECT_TRUE(ledger_->check_submit(2, kFirst + 1).value());
    EXPECT_TRUE(ledger_->check_submit(1, kFirst + 1).value()) << "a tensor may sit out a failed step";
    EXPECT_EQ(ledger_->check_submit(0, kFirst).error().code(), StatusCode::kInvalidArgument)
        << "handed in once already";
}
TEST_F(LedgerTest, Tensor_late_for_a_committed_step_is_refused) {
    start();
    tell(Kind::kStepDone, 0, kFirst);
    EXPECT_EQ(ledger_->check_submit(2, kFirst).error().code(), StatusCode::kInvalidArgument);
}
TEST_F(LedgerTest, Answer_with_an_error_is_that_tensors_outcome) {
    start();
    submit(0, kFirst);
    submit(1, kFirst);
    tell(Kind::kTensor, 0, kFirst, {StatusCode::kResourceExhausted, "no room"});
    EXPECT_EQ(ledger_->outcome(0)->code(), StatusCode::kResourceExhausted);
    EXPECT_FALSE(ledger_->outcome(1));
}
TEST_F(LedgerTest, Answers_to_steps_not_handed_in_change_nothing) {
    start();
    tell(Kind::kTensor, 0, kFirst);
    EXPECT_FALSE(ledger_->has_ended());
    submit(0, kFirst);
    EXPECT_FALSE(ledger_->outcome(0));
}
TEST_F(LedgerTest, Steps_that_are_done_out_of_order_end_the_job) {
    start();
    tell(Kind::kStepDone, 0, kFirst + 1);
    expect_senseless();
}
TEST_F(LedgerTest, Verdicts_of_past_open_and_future_steps) {
    start();
    EXPECT_EQ(ledger_->verdict(0, kFirst - 1)->code(), StatusCode::kInvalidArgument);
    EXPECT_FALSE(ledger_->verdict(0, kFirst));
    EXPECT_EQ(ledger_->verdict(0, kFirst + 1)->code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(ledger_->verdict(0, kFirst + 1)->text(), HasSubstr("ahead"));
    for (Step step = kFirst; step < kFirst + 3; ++step) tell(Kind::kStepDone, 0, step);
    EXPECT_TRUE(ledger_->verdict(0, kFirst)->is_ok()) << "not only the last";
    EXPECT_TRUE(ledger_->verdict(0, kFirst + 2)->is_ok());
}
TEST_F(LedgerTest, Failures_are_remembered_up_to_a_limit_and_never_told_wrong) {
    start();
    constexpr Step kSteps = 100;
    for (Step step = kFirst; step < kFirst + kSteps; ++step)
        tell(Kind::kStepDone, 0, step,
             step % 2 == 0 ? Status() : Status(StatusCode::kStepFailed, std::to_string(step)));
    EXPECT_EQ(ledger_->verdict(0, 7)->text(), "7");
    for (Step step = 105; step < 105 + kSteps; ++step)
        tell(Kind::kStepDone, 0, step,
             step % 2 == 0 ? Status() : Status(StatusCode::kStepFailed, std::to_string(step)));
    EXPECT_EQ(ledger_->verdict(0, 7)->code(), StatusCode::kInvalidArgument)
        << "forgotten: neither committed nor failed";
    EXPECT_EQ(ledger_->verdict(0, 203)->text(), "203");
    EXPECT_TRUE(ledger_->verdict(0, 202)->is_ok());
}
TEST_F(LedgerTest, Wait_without_a_step_says_so) {
    start();
    EXPECT_EQ(ledger_->outcome(0)->code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(ledger_->outcome(0)->text(), HasSubstr("call submit first"));
}
TEST_F(LedgerTest, End_of_the_job_answers_what_is_open_and_keeps_what_was_answered) {
    start();
    submit(0, kFirst);
    submit(1, kFirst);
    tell(Kind::kTensor, 0, kFirst);
    tell(Kind::kJobEnded, 0, 0, {StatusCode::kPeerFailed, "rank 3 on node b died"});
    EXPECT_TRUE(ledger_->outcome(0)->is_ok());
    EXPECT_EQ(ledger_->outcome(1)->code(), StatusCode::kPeerFailed);
    EXPECT_EQ(ledger_->verdict(0, kFirst)->text(), "rank 3 on node b died");
    EXPECT_FALSE(ledger_->has_left());
}
TEST_F(LedgerTest, Goodbye_is_an_end_of_its_own_kind) {
    start();
    tell(Kind::kJobEnded, 0, 0);
    EXPECT_TRUE(ledger_->has_left());
    EXPECT_EQ(ledger_->ended().code(), StatusCode::kCancelled);
}
TEST_F(LedgerTest, First_reason_of_the_end_stays) {
    ledger_->end({StatusCode::kUnavailable, "first"});
    ledger_->end({StatusCode::kInternal, "second"});
    EXPECT_EQ(ledger_->ended().text(), "first");
}
TEST_F(LedgerTest, Text_that_fills_the_cell_is_read_within_it) {
    shm::Completion completion;
    completion.kind = Kind::kJobEnded;
    completion.code = StatusCode::kPeerFailed;
    completion.text.fill('x');  // no NUL: a daemon that lies
    ledger_->on_completion(completion);
    EXPECT_EQ(ledger_->ended().text(), std::string(shm::Completion::kTextBytes, 'x'));
}
TEST_F(LedgerTest, Answers_to_collectives_that_were_not_asked_end_the_job) {
    start();
    tell(Kind::kBroadcast, 0, 1);
    expect_senseless();
}
TEST_F(LedgerTest, Collectives_are_numbered_by_kind) {
    start();
    ledger_->broadcasts().begin({0, 0});
    ledger_->comparisons().begin({0, 0});
    tell(Kind::kCheckEqual, 0, 1, {StatusCode::kMismatch, "rank 2 differs"});
    tell(Kind::kBroadcast, 0, 1);
    EXPECT_EQ(ledger_->comparisons().answer_of(1)->code(), StatusCode::kMismatch);
    EXPECT_TRUE(ledger_->broadcasts().answer_of(1)->is_ok());
}

}  // namespace
}  // namespace gradsieve::client

// Budgets in the configuration and behind a codec's text.
#include "daemon/config_budget.hpp"

#include "tests/daemon/config_fixture.hpp"

#include <gmock/gmock.h>

namespace gradsieve::daemon {
namespace {

using testing::HasSubstr;

std::string refusal(std::string_view text) { return split_budget(text).status().to_string(); }

TEST(Budget, Stands_behind_a_codec_and_is_taken_off_it) {
    const auto bytes = split_budget("topk(0.01) | pow2 ; budget_bytes_per_step=200000; *.bias: all | f32");
    ASSERT_TRUE(bytes.is_ok()) << bytes.status().to_string();
    EXPECT_EQ(bytes->codec, "topk(0.01) | pow2; *.bias: all | f32");
    EXPECT_EQ(bytes->budget, (Budget{.bytes_per_step = 200000}));
    EXPECT_EQ(budget_text(bytes->budget), "budget_bytes_per_step = 200000");
    const auto ms = split_budget("variance; budget_ms_per_step = 12.5");
    ASSERT_TRUE(ms.is_ok());
    EXPECT_EQ(budget_text(ms->budget), "budget_ms_per_step = 12.5");
    EXPECT_EQ(ms->budget.limit(), 12.5);
    const auto none = split_budget("topk(0.01); budget*: all | f32");
    ASSERT_TRUE(none.is_ok());
    EXPECT_EQ(none->codec, "topk(0.01); budget*: all | f32") << "a rule for tensors of that name";
    EXPECT_FALSE(none->budget.is_set());
    EXPECT_EQ(budget_text(none->budget), "");
}
TEST(Budget, Wrong_ones_are_named_with_what_is_allowed) {
    EXPECT_EQ(refusal("topk(0.1); budget_byte_per_step = 3"),
              "invalid-argument: budget 'budget_byte_per_step = 3': allowed is budget_bytes_per_step = BYTES or "
              "budget_ms_per_step = MILLISECONDS; write one of them behind the codec, or remove it");
    for (const auto* text : {"0", "-1", "1.5", "1e16", "many", "", "12 kB", "inf", "nan"})
        EXPECT_THAT(refusal("topk(0.1); budget_bytes_per_step = " + std::string(text)),
                    HasSubstr("allowed is a whole number of bytes from 1 to 1e15"));
    for (const auto* text : {"0", "-1", "0.0001", "1e9", "soon"})
        EXPECT_THAT(refusal("topk(0.1); budget_ms_per_step = " + std::string(text)),
                    HasSubstr("allowed is 0.001 to 3600000 ms"));
    EXPECT_THAT(refusal("topk(0.1); budget_ms_per_step = 1; budget_bytes_per_step = 1"),
                HasSubstr("allowed is one budget; remove one of the two"));
    EXPECT_THAT(refusal("topk(0.1); budget"), HasSubstr("allowed is budget_bytes_per_step = BYTES"));
}
TEST_F(ConfigTest, Budgets_that_nothing_could_meet_are_refused_with_file_and_line) {
    EXPECT_EQ(error_of("[codec]\nbudget_bytes_per_step = 200000\n"), "loaded");
    EXPECT_EQ(error_of("[codec]\nbudget_ms_per_step = 20\ndefault = \"all | f32; *w: topk(0.1)\"\n"), "loaded");
    EXPECT_EQ(error_of("[codec]\ndefault = \"topk(0.1); budget_ms_per_step = 3\"\n"), "loaded");
    EXPECT_EQ(error_of("[codec]\nbudget_ms_per_step = 20\nbudget_bytes_per_step = 1\n"),
              "invalid-argument: gradsieved.toml:2: codec.budget_ms_per_step: budget_ms_per_step beside "
              "budget_bytes_per_step: allowed is one of them; remove the other");
    EXPECT_THAT(error_of("[codec]\nplan = \"sharded\"\nbudget_bytes_per_step = 1\n"),
                HasSubstr("gradsieved.toml:3: codec.budget_bytes_per_step: a budget under plan = \"sharded\""));
    EXPECT_THAT(error_of("[codec]\ndefault = \"lowrank(4)\"\nbudget_bytes_per_step = 1\n"),
                HasSubstr("gradsieved.toml:3: codec.budget_bytes_per_step: budget with codec 'lowrank("));
    EXPECT_THAT(error_of("[codec]\ndefault = \"randk(0.1); budget_ms_per_step = 3\"\n"),
                HasSubstr("gradsieved.toml:2: codec.default: budget with codec 'randk("));
    EXPECT_THAT(error_of("[codec]\ndefault = \"topk(0.1); budget_ms = 3\"\n"), HasSubstr("budget 'budget_ms = 3'"));
    EXPECT_THAT(error_of("[codec]\nbudget_ms_per_step = -1\n"), HasSubstr("allowed is 0, or 0.001 to 3600000 ms"));
    EXPECT_THAT(error_of("[codec]\nsmall = \"all | bf16; budget_ms_per_step = 3\"\n"), HasSubstr("codec.small"));
}

TEST_F(ConfigTest, Budgets_are_taken_over_by_a_reload) {
    auto running = load("[codec]\nbudget_bytes_per_step = 200000\n");
    const auto fresh = load("[codec]\nbudget_ms_per_step = 2.5\n");
    ASSERT_TRUE(running.is_ok() && fresh.is_ok());
    EXPECT_THAT(changed_keys_needing_restart(*running, *fresh), testing::IsEmpty());
    take_reloadable_keys(*running, *fresh);
    EXPECT_EQ(running->budget_bytes_per_step, 0U);
    EXPECT_EQ(running->budget_ms_per_step, 2.5);
}

}  // namespace
}  // namespace gradsieve::daemon

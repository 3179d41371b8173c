#include "base/status.hpp"

#include <gtest/gtest.h>

namespace gradsieve {
namespace {

Result<int> half_of(int value) {
    if (value % 2 != 0) return Status(StatusCode::kInvalidArgument, "value 3: allowed is even");
    return value / 2;
}
Status uses_try(int value) {
    GRADSIEVE_ASSIGN(const int half, half_of(value));
    if (half != 2) return {StatusCode::kInternal, "wrong half"};
    return {};
}

TEST(Status, Default_is_ok_and_prints_ok) {
    EXPECT_TRUE(Status().is_ok());
    EXPECT_EQ(Status().to_string(), "ok");
}
TEST(Status, Context_goes_before_the_text_and_keeps_the_code) {
    const auto status = Status(StatusCode::kCorrupt, "bad magic").with_context("frame from b");
    EXPECT_EQ(status.to_string(), "corrupt: frame from b: bad magic");
}
TEST(Result, Macros_pass_errors_up_and_values_on) {
    EXPECT_TRUE(uses_try(4).is_ok());
    EXPECT_EQ(uses_try(3).code(), StatusCode::kInvalidArgument);
}
TEST(StatusCode, Every_number_up_to_the_last_has_a_name) {
    for (std::uint16_t number = 0; number <= 18; ++number)
        EXPECT_NE(status_code_name(static_cast<StatusCode>(number)), "unknown") << number;
    EXPECT_EQ(status_code_name(static_cast<StatusCode>(999)), "unknown");
}

}  // namespace
}  // namespace gradsieve

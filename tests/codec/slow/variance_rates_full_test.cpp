// Every cell of the table of send rates, at the table's own size.
#include "variance_simulation.hpp"

namespace gradsieve::codec {
namespace {

class VarianceRatesFull : public ::testing::TestWithParam<std::size_t> {};

TEST_P(VarianceRatesFull, Agrees_with_the_table_within_five_percent) {
    const RateCase which = rate_table()[GetParam()];
    const double rate = simulate_send_rate(which, {}, 1802 + GetParam());
    // The table gives four decimals: below 0.001 it is an order of magnitude only.
    const double tolerance = which.expected_rate < 0.001 ? 0.5 : 0.05 + 0.00005 / which.expected_rate;
    EXPECT_NEAR(rate / which.expected_rate, 1.0, tolerance) << rate_case_name(which) << ": " << rate;
    RecordProperty("rate", std::to_string(rate));
}
INSTANTIATE_TEST_SUITE_P(Table, VarianceRatesFull, ::testing::Range<std::size_t>(0, rate_table().size()));

}  // namespace
}  // namespace gradsieve::codec

#include "codec/cpu_form.hpp"

#include <gmock/gmock.h>

namespace gradsieve::codec {
namespace {

TEST(CpuForm, Scalar_always_runs_and_the_fastest_is_supported) {
    EXPECT_TRUE(is_cpu_form_supported(CpuForm::kScalar));
    EXPECT_TRUE(is_cpu_form_supported(fastest_cpu_form()));
}
TEST(CpuForm, Every_supported_name_parses_to_its_form) {
    for (const CpuForm form : cpu_forms()) {
        const auto parsed = parse_cpu_form(cpu_form_name(form));
        ASSERT_EQ(parsed.is_ok(), is_cpu_form_supported(form));
        EXPECT_EQ(parsed.value_or(form), form);
    }
    EXPECT_EQ(*parse_cpu_form(""), fastest_cpu_form());
}
TEST(CpuForm, An_unknown_name_is_refused_with_what_there_is) {
    const auto status = parse_cpu_form("avx1024").status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.text(), ::testing::AllOf(::testing::HasSubstr("avx1024"), ::testing::HasSubstr("scalar"),
                                                ::testing::HasSubstr("GRADSIEVE_CPU_FORM")));
}

}  // namespace
}  // namespace gradsieve::codec

#include "codec/decoder.hpp"
#include "tests/codec/payload_cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace gradsieve::codec {
namespace {

TEST(ExactChunk, Any_bits_come_back) {
    const std::vector<float> values = {1.0F, -0.0F, std::numeric_limits<float>::infinity(),
                                       std::bit_cast<float>(0x7FC12345U), 1e-45F};
    const Bytes payload = build_exact_chunk(values);
    EXPECT_EQ(payload.size(), 2 + 4 * values.size());
    std::vector<float> back(values.size(), 9.0F);
    ASSERT_TRUE(read_exact_chunk(payload, back).is_ok());
    EXPECT_EQ(std::memcmp(back.data(), values.data(), 4 * values.size()), 0);
}
TEST(ExactChunk, Is_the_payload_of_all_f32) {
    const auto values = test::make_values(test::Shape::kGaussian, 4097, 1);
    EXPECT_EQ(build_exact_chunk(values), test::code(*parse_pipeline("all | f32"), 4097, true, {}, values).payload);
}
TEST(ExactChunk, Other_payloads_and_lengths_are_refused_without_a_write) {
    std::vector<float> back(3, 9.0F);
    auto payload = build_exact_chunk(std::vector<float>{1, 2, 3});
    payload.pop_back();
    EXPECT_THAT(read_exact_chunk(payload, back).text(), ::testing::HasSubstr("length behind the header 11"));
    const auto rounded = test::code(*parse_pipeline("all | bf16"), 3, true, {}, {1, 2, 3}).payload;
    EXPECT_THAT(read_exact_chunk(rounded, back).text(), ::testing::HasSubstr("every element as f32"));
    EXPECT_EQ(read_exact_chunk({}, back).code(), StatusCode::kCorrupt);
    EXPECT_EQ(back, std::vector<float>(3, 9.0F));
}

}  // namespace
}  // namespace gradsieve::codec

#include "codec/payload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace gradsieve::codec {
namespace {

using ::testing::HasSubstr;

Bytes bytes_of(std::initializer_list<unsigned> values) {
    Bytes bytes;
    for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
    return bytes;
}
std::string refusal(std::initializer_list<unsigned> payload, ElementCount elements = 5000) {
    const auto parsed = parse_header(bytes_of(payload), elements);
    EXPECT_FALSE(parsed.is_ok());
    return parsed.status().to_string();
}

Bytes header_bytes(const PayloadHeader& header) {
    Bytes bytes(kMostHeaderBytes);
    bytes.resize(static_cast<std::size_t>(build_header(header, bytes.data()) - bytes.data()));
    return bytes;
}

TEST(Payload, Header_reads_back_as_it_was_written) {
    PayloadHeader header;
    header.quantizer = QuantizerKind::kPow2;
    header.index_form = IndexForm::kRice;
    header.code_bits = 6;
    header.count = 300;
    header.index_parameter = 20;
    header.exponent_parameter = 5;
    header.base_exponent = 254;
    const Bytes payload = header_bytes(header);
    EXPECT_EQ(payload.size(), payload_sizes(header, {}).header);
    const auto parsed = parse_header(payload, 5000);
    ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
    EXPECT_EQ(parsed->header_bytes, payload.size());
    EXPECT_EQ(parsed->header.quantizer, header.quantizer);
    EXPECT_EQ(parsed->header.index_form, header.index_form);
    EXPECT_EQ(parsed->header.code_bits, 6U);
    EXPECT_EQ(parsed->header.count, 300U);
    EXPECT_EQ(parsed->header.index_parameter, 20U);
    EXPECT_EQ(parsed->header.exponent_parameter, 5U);
    EXPECT_EQ(parsed->header.base_exponent, 254);
}
TEST(Payload, Count_takes_one_to_three_bytes_at_its_boundaries) {
    for (const auto& [count, bytes] :
         {std::pair(1U, 4U), {127U, 4U}, {128U, 5U}, {16383U, 5U}, {16384U, 6U}, {1U << 20U, 6U}}) {
        PayloadHeader header;
        header.index_form = IndexForm::kBitmap;
        header.count = count;
        const Bytes payload = header_bytes(header);
        EXPECT_EQ(payload.size(), bytes) << count;
        EXPECT_EQ(payload_sizes(header, {}).header, bytes) << count;
        ASSERT_TRUE(parse_header(payload, kChunkElements).is_ok());
        EXPECT_EQ(parse_header(payload, kChunkElements)->header.count, count);
    }
}
TEST(Payload, Every_bad_header_field_is_named) {
    EXPECT_EQ(refusal({1, 0}),
              "version-mismatch: payload version 1: allowed is 2 to 5; install matching releases on all nodes");
    EXPECT_EQ(
        refusal({}),
        "corrupt: payload length in bytes 0: allowed is 2 or more; the bytes were damaged or forged: have the sender "
        "send the step again");
    EXPECT_THAT(refusal({2}), HasSubstr("length in bytes 1"));
    EXPECT_THAT(refusal({2, 7U << 5U, 1, 0}), HasSubstr("version of index form 7 2: allowed is 5"));
    EXPECT_THAT(refusal({5, 7U << 5U, 1, 2, 3, 4, 5, 6, 7}), HasSubstr("length in bytes 9: allowed is at least its"));
    EXPECT_THAT(refusal({5, 0xE3, 0x03, 0, 0}), HasSubstr("quantizer of a rotation 3: allowed is one of numbers"));
    EXPECT_THAT(refusal({5, 0xE6, 0x00, 0, 0}), HasSubstr("quantizer of a rotation 6"));
    EXPECT_THAT(refusal({6, 0}), HasSubstr("payload version 6: allowed is 2 to 5"));
    EXPECT_THAT(refusal({2, 4U << 5U, 1, 0}), HasSubstr("version of index form 4 2: allowed is 5"));
    EXPECT_THAT(refusal({5, 0}), HasSubstr("version of quantizer 0 5: allowed is 2"));
    EXPECT_THAT(refusal({4, 0x05, 0}), HasSubstr("version of quantizer 5 4: allowed is 5"));
    EXPECT_THAT(refusal({5, 0x05, 0x01}), HasSubstr("value form of signs 1: allowed is 0"));
    EXPECT_THAT(refusal({5, 0x06, 0x08}), HasSubstr("value form of signs 8: allowed is 0"));
    EXPECT_THAT(refusal({5, 0x26, 0x00, 1, 0}), HasSubstr("index form of vote 1: allowed is 0 (every)"));
    EXPECT_THAT(refusal({5, 0xA5, 0x00, 1, 0}),
                HasSubstr("quantizer after a key 5: allowed is one with a code for zero"));
    EXPECT_THAT(refusal({4, 0}), HasSubstr("version of quantizer 0 4: allowed is 2"));
    EXPECT_THAT(refusal({3, 0x09, 3}), HasSubstr("version of quantizer 9 3: allowed is 4"));
    EXPECT_THAT(refusal({4, 0x09, 0x00}), HasSubstr("exponential_dither width code 0"));
    EXPECT_THAT(refusal({4, 0x09, 0x0B}), HasSubstr("exponential_dither scale code 1"));
    EXPECT_THAT(refusal({4, 0x09, 0x03, 0, 0, 0x80, 0x3F, 0}), HasSubstr("base 1.000000: allowed is 1.1 to 16"));
    EXPECT_THAT(refusal({4, 0x09, 0x03, 0, 0, 0xC0, 0x7F, 0}), HasSubstr("base nan"));
    EXPECT_THAT(refusal({4, 0x09, 0x03, 0, 0}), HasSubstr("length in bytes 5"));
    EXPECT_THAT(refusal({3, 0}), HasSubstr("version of quantizer 0 3: allowed is 2"));
    EXPECT_THAT(refusal({2, 0x07, 0x07}), HasSubstr("version of quantizer 7 2: allowed is 3"));
    EXPECT_THAT(refusal({3, 0x07, 0x06}), HasSubstr("natural width code 6: allowed is 7"));
    EXPECT_THAT(refusal({3, 0x07, 0x0F}), HasSubstr("natural scale code 1"));
    EXPECT_THAT(refusal({3, 0x07, 0x47}), HasSubstr("reserved value bits 1"));
    EXPECT_THAT(refusal({2, 0x01}), HasSubstr("version of quantizer 1 2: allowed is 3"));
    EXPECT_THAT(refusal({4, 0x0B, 0x03}), HasSubstr("version of quantizer 11 4: allowed is 5"));
    EXPECT_THAT(refusal({5, 0x2B, 0x03, 1, 0}), HasSubstr("index form of minmax 1: allowed is 0 (every)"));
    EXPECT_THAT(refusal({5, 0x0B, 0x03, 7}), HasSubstr("minmax bucket code 7: allowed is 0 to 6"));
    EXPECT_THAT(refusal({5, 0x0B, 0x00}), HasSubstr("minmax width code 0"));
    EXPECT_THAT(refusal({5, 0x0B, 0x0B}), HasSubstr("minmax scale code 1"));
    for (const unsigned quantizer : {12U, 13U, 30U})
        EXPECT_THAT(refusal({2, quantizer, 0, 0}),
                    HasSubstr("quantizer " + std::to_string(quantizer) + ": allowed is 0"));
    EXPECT_THAT(refusal({5, 31, 7, 0}), HasSubstr("form 31: allowed is one of a codec with similarity(skip=..)"));
    EXPECT_THAT(refusal({2, 0x03, 0x00, 0, 127}), HasSubstr("pow2 width code 0"));
    EXPECT_THAT(refusal({2, 0x03, 0x0B, 0, 127}), HasSubstr("pow2 scale code 1"));
    EXPECT_THAT(refusal({2, 0x03, 0x43, 0, 127}), HasSubstr("reserved value bits 1"));
    EXPECT_THAT(refusal({2, 0x03, 0x23, 0, 127}), HasSubstr("version of quantizer 3 2: allowed is 5"));
    EXPECT_THAT(refusal({2, 0x04, 0x10}), HasSubstr("sign scale code 2"));
    EXPECT_THAT(refusal({2, 0x04, 0x01}), HasSubstr("sign width code 1"));
    EXPECT_THAT(refusal({2, 0x08, 0x00}), HasSubstr("dither width code 0"));
    EXPECT_THAT(refusal({2, 0x08, 0x0B}), HasSubstr("dither scale code 1"));
    EXPECT_THAT(refusal({2, 0x04}), HasSubstr("at least its header"));
    EXPECT_THAT(refusal({2, 0x20, 0, 0}), HasSubstr("count 0"));
    EXPECT_THAT(refusal({2, 0x20, 11, 0}, 10), HasSubstr("count 11: allowed is 1 to 10"));
    EXPECT_THAT(refusal({2, 0x20, 0x81, 0x80, 0x80, 0, 0}), HasSubstr("at most 3 bytes"));
    EXPECT_THAT(refusal({2, 0x20, 0x81, 0x00, 0}), HasSubstr("the shortest form"));
    EXPECT_THAT(refusal({2, 0x20}), HasSubstr("count"));
    EXPECT_THAT(refusal({2, 0x20, 1, 21}), HasSubstr("rice parameter 21: allowed is 0 to 20"));
    EXPECT_THAT(refusal({5, 0x80, 1, 21}), HasSubstr("elias_fano lower bits 21: allowed is 0 to 20"));
    EXPECT_THAT(refusal({2, 0x40, 1, 1}), HasSubstr("rice parameter 1: allowed is 0 to 0"));
    EXPECT_THAT(refusal({2, 0x20, 1, 0x20}), HasSubstr("exponent parameter 1"));
    EXPECT_THAT(refusal({2, 0x03, 0x03, 0xE0, 0}), HasSubstr("base exponent 0"));
    EXPECT_THAT(refusal({2, 0x03, 0x03, 0xE0, 255}), HasSubstr("base exponent 255"));
    EXPECT_THAT(refusal({2, 0x03, 0x03, 0xE0}), HasSubstr("at least its header"));
    EXPECT_THAT(refusal({2, 0x04, 0x08, 0, 0, 0xC0, 0x7F}), HasSubstr("scale nan"));
    EXPECT_THAT(refusal({2, 0x04, 0x08, 0, 0, 0x80, 0xBF}), HasSubstr("scale -1"));
    EXPECT_THAT(refusal({2, 0}, 0), HasSubstr("chunk of elements 0"));
    EXPECT_THAT(refusal({2, 0}, kChunkElements + 1), HasSubstr("chunk of elements 1048577"));
}
TEST(Payload, Bf16_rounds_to_nearest_even_and_saturates) {
    const auto round = [](std::uint32_t bits) { return bf16_of(std::bit_cast<float>(bits)); };
    EXPECT_EQ(round(0x3F800000), 0x3F80);
    EXPECT_EQ(round(0x3F808000), 0x3F80) << "tie to the even mantissa below";
    EXPECT_EQ(round(0x3F818000), 0x3F82) << "tie to the even mantissa above";
    EXPECT_EQ(round(0x3F808001), 0x3F81);
    EXPECT_EQ(round(0x7F7FFFFF), 0x7F7F) << "largest finite, not infinity";
    EXPECT_EQ(round(0xFF7FFFFF), 0xFF7F);
    EXPECT_EQ(round(0x80000000), 0x8000);
    EXPECT_EQ(round(0x00000001), 0x0000);
    EXPECT_EQ(float_of_bf16(0xC000), -2.0F);
}

}  // namespace
}  // namespace gradsieve::codec

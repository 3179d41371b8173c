#include "codec/index_coder.hpp"

#include "codec/payload_kernels.hpp"
#include "tests/codec/payload_cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

namespace gradsieve::codec {
namespace {

using ::testing::HasSubstr;

std::uint64_t rice_bits(const std::vector<std::uint32_t>& gaps, unsigned parameter) {
    std::uint64_t bits = 0;
    for (const auto gap : gaps) bits += parameter + 1 + (gap >> parameter);
    return bits;
}
struct Parsed {
    Status status;
    std::vector<std::uint32_t> indices;
    std::size_t used_bytes = 0;
};
Parsed parse(IndexForm form, std::uint32_t count, unsigned parameter, const Bytes& body, ElementCount elements) {
    PayloadHeader header;
    header.index_form = form;
    header.count = count;
    header.index_parameter = parameter;
    Parsed parsed;
    parsed.indices.resize(count + kIndexSlack);
    parsed.status = parse_indices(header, body, elements, parsed.indices.data(), parsed.used_bytes);
    parsed.indices.resize(count);
    return parsed;
}

rc::Gen<std::vector<std::uint32_t>> ascending(std::uint32_t limit) {
    return rc::gen::map(rc::gen::nonEmpty(rc::gen::container<std::set<std::uint32_t>>(rc::gen::inRange(0U, limit))),
                        [](const std::set<std::uint32_t>& set) { return std::vector(set.begin(), set.end()); });
}

TEST(IndexCoder, Rice_plan_is_the_smallest_of_all_parameters) {
    EXPECT_TRUE(rc::check("exact minimum", [] {
        const auto limit = *rc::gen::element(2U, 100U, 5000U, 1U << 20U);
        const auto indices = *ascending(limit);
        std::vector<std::uint32_t> gaps;
        const RicePlan plan = plan_rice(indices, payload_kernels(), gaps);
        unsigned best = 0;
        for (unsigned parameter = 0; parameter <= kMaximumRiceParameter; ++parameter)
            if (rice_bits(gaps, parameter) < rice_bits(gaps, best)) best = parameter;
        RC_ASSERT(plan.parameter == best);
        RC_ASSERT(plan.unary_bits == rice_bits(gaps, best) - best * gaps.size());
        std::uint32_t next = 0;
        for (std::size_t i = 0; i < gaps.size(); ++i) {
            RC_ASSERT(next + gaps[i] == indices[i]);
            next = indices[i] + 1;
        }
    }));
}
TEST(IndexCoder, Every_form_parses_back_and_uses_what_it_wrote) {
    EXPECT_TRUE(rc::check("round trip", [] {
        const auto limit = *rc::gen::element(2U, 9U, 100U, 5000U, 1U << 20U);
        const auto indices = *ascending(limit);
        const auto count = static_cast<std::uint32_t>(indices.size());
        const auto parameter = *rc::gen::inRange(0U, kMaximumRiceParameter + 1);
        std::vector<std::uint32_t> gaps;
        static_cast<void>(plan_rice(indices, payload_kernels(), gaps));
        Bytes body(rice_bits(gaps, parameter) / 8 + 32);
        std::byte* end = build_low_fields(gaps, parameter, payload_kernels(), body.data());
        end = build_rice_quotients(gaps, parameter, end);
        const auto size = static_cast<std::size_t>(end - body.data());
        body.resize(size);
        body.shrink_to_fit();
        auto parsed = parse(IndexForm::kRice, count, parameter, body, limit);
        RC_ASSERT(parsed.status.is_ok());
        RC_ASSERT(parsed.used_bytes == size);
        RC_ASSERT(parsed.indices == indices);

        Bytes bitmap(bytes_of_bits(limit), std::byte{0xEE});
        RC_ASSERT(build_bitmap(indices, limit, bitmap.data()) == bitmap.data() + bitmap.size());
        parsed = parse(IndexForm::kBitmap, count, 0, bitmap, limit);
        RC_ASSERT(parsed.status.is_ok());
        RC_ASSERT(parsed.indices == indices);
    }));
}
Bytes elias_fano(const std::vector<std::uint32_t>& indices, ElementCount elements, unsigned low_bits) {
    Bytes body(indices.size() * 4 + bytes_of_bits(elements) + 64, std::byte{0xEE});
    std::byte* end = build_low_fields(indices, low_bits, payload_kernels(), body.data());
    end = build_elias_fano_highs(indices, elements, low_bits, end);
    body.resize(static_cast<std::size_t>(end - body.data()));
    body.shrink_to_fit();
    return body;
}

TEST(IndexCoder, Elias_fano_parses_back_with_any_number_of_lower_bits) {
    EXPECT_TRUE(rc::check("round trip", [] {
        const auto limit = *rc::gen::element(2U, 9U, 100U, 5000U, 1U << 20U);
        const auto indices = *ascending(limit);
        const auto count = static_cast<std::uint32_t>(indices.size());
        const auto low_bits = *rc::gen::inRange(0U, kMaximumRiceParameter + 1);
        const Bytes body = elias_fano(indices, limit, low_bits);
        RC_ASSERT(body.size() ==
                  bytes_of_bits(std::uint64_t{count} * low_bits) + bytes_of_bits(count + ((limit - 1) >> low_bits)));
        const auto parsed = parse(IndexForm::kEliasFano, count, low_bits, body, limit);
        RC_ASSERT(parsed.status.is_ok());
        RC_ASSERT(parsed.used_bytes == body.size());
        RC_ASSERT(parsed.indices == indices);
    }));
}
/// sum of floor(gap / 2^l) <= floor(sum of gaps / 2^l) <= floor((n - 1) / 2^l): auto need not try elias_fano.
TEST(IndexCoder, Elias_fano_is_never_smaller_than_rice_of_the_same_parameter) {
    EXPECT_TRUE(rc::check("sizes", [] {
        const auto limit = *rc::gen::element(2U, 9U, 100U, 5000U, 1U << 20U);
        const auto indices = *ascending(limit);
        const auto count = static_cast<std::uint32_t>(indices.size());
        const auto low_bits = *rc::gen::inRange(0U, kMaximumRiceParameter + 1);
        std::vector<std::uint32_t> gaps;
        const RicePlan plan = plan_rice(indices, payload_kernels(), gaps);
        RC_ASSERT(rice_bits(gaps, low_bits) <= std::uint64_t{count} * low_bits + count + ((limit - 1) >> low_bits));
        const auto rice_bytes = [&](unsigned parameter, std::uint64_t unary_bits) {
            return bytes_of_bits(std::uint64_t{count} * parameter) + bytes_of_bits(unary_bits);
        };
        RC_ASSERT(rice_bytes(low_bits, rice_bits(gaps, low_bits) - std::uint64_t{count} * low_bits) <=
                  elias_fano(indices, limit, low_bits).size());
        // The plan counts bits; sections end at bytes.
        const auto chosen = elias_fano_low_bits(limit, count);
        RC_ASSERT(rice_bytes(plan.parameter, plan.unary_bits) <= elias_fano(indices, limit, chosen).size() + 1);
    }));
}
TEST(IndexCoder, Lower_bits_of_elias_fano_are_the_logarithm_of_the_mean_distance) {
    EXPECT_EQ(elias_fano_low_bits(1, 1), 0U);
    EXPECT_EQ(elias_fano_low_bits(7, 4), 0U);
    EXPECT_EQ(elias_fano_low_bits(8, 4), 1U);
    EXPECT_EQ(elias_fano_low_bits(1U << 20U, 1), 20U);
    EXPECT_EQ(elias_fano_low_bits(1U << 20U, 104857), 3U);
    EXPECT_EQ(elias_fano_low_bits(1U << 20U, 10485), 6U);
    EXPECT_EQ(elias_fano_low_bits(1U << 20U, 1048), 9U);
    EXPECT_EQ(elias_fano_low_bits(1U << 20U, 104), 13U);
}
TEST(IndexCoder, Known_bytes_of_elias_fano) {
    // Upper parts of 0, 1, 5, 14 by 4: 0 0 1 3, so ones at 0, 1, 3, 6 of 4 + 15 / 4 = 7 bits; lower 00 01 01 10.
    EXPECT_EQ(elias_fano({0, 1, 5, 14}, 16, 2), (Bytes{std::byte{0x94}, std::byte{0x4B}}));
}
TEST(IndexCoder, Bad_elias_fano_is_refused_by_name) {
    const auto refusal = [](std::uint32_t count, unsigned low_bits, const Bytes& body, ElementCount elements) {
        const auto parsed = parse(IndexForm::kEliasFano, count, low_bits, body, elements);
        EXPECT_EQ(parsed.used_bytes, 0U);
        return parsed.status.text();
    };
    const Bytes good = {std::byte{0x94}, std::byte{0x4B}};
    ASSERT_TRUE(parse(IndexForm::kEliasFano, 4, 2, good, 16).status.is_ok());
    EXPECT_THAT(refusal(4, 2, {std::byte{0x94}}, 16), HasSubstr("elias_fano indices cut off after 1 bytes"));
    EXPECT_THAT(refusal(4, 2, {}, 16), HasSubstr("elias_fano indices cut off after 0 bytes"));
    EXPECT_THAT(refusal(4, 2, {std::byte{0x94}, std::byte{0xCB}}, 16),
                HasSubstr("elias_fano upper bits with set padding"));
    EXPECT_THAT(refusal(3, 2, {std::byte{0x94}, std::byte{0x0B}}, 16),
                HasSubstr("elias_fano lower bits with set padding"));
    EXPECT_THAT(refusal(4, 2, {std::byte{0x94}, std::byte{0x0B}}, 16),
                HasSubstr("elias_fano ones 3: allowed is its count, 4"));
    EXPECT_THAT(refusal(4, 2, {std::byte{0x94}, std::byte{0x5B}}, 16), HasSubstr("elias_fano ones 5"));
    EXPECT_THAT(refusal(4, 2, {std::byte{0x90}, std::byte{0x4B}}, 16),
                HasSubstr("index 0: allowed is ascending and less than 16"))
        << "the same twice";
    EXPECT_THAT(refusal(4, 2, {std::byte{0x91}, std::byte{0x4B}}, 16), HasSubstr("index 0: allowed is ascending"));
    EXPECT_THAT(refusal(4, 2, good, 14), HasSubstr("index 14: allowed is ascending and less than 14"));
}
TEST(IndexCoder, Known_bytes_of_a_small_list) {
    const std::vector<std::uint32_t> indices = {0, 1, 5, 14};  // gaps 0 0 3 8
    std::vector<std::uint32_t> gaps;
    static_cast<void>(plan_rice(indices, payload_kernels(), gaps));
    EXPECT_EQ(gaps, (std::vector<std::uint32_t>{0, 0, 3, 8}));
    Bytes body(32);
    std::byte* end = build_low_fields(gaps, 2, payload_kernels(), body.data());  // 00 00 11 00
    EXPECT_EQ(end - body.data(), 1);
    EXPECT_EQ(body[0], std::byte{0x30});
    end = build_rice_quotients(gaps, 2, end);  // 1 1 1 001
    EXPECT_EQ(end - body.data(), 2);
    EXPECT_EQ(body[1], std::byte{0x27});
}
TEST(IndexCoder, Bad_sections_are_refused_by_name) {
    const Bytes ones(1, std::byte{0xFF});
    EXPECT_THAT(parse(IndexForm::kRice, 4, 4, ones, 100).status.text(),
                HasSubstr("rice remainders cut off after 1 bytes"));
    EXPECT_THAT(parse(IndexForm::kRice, 9, 0, ones, 100).status.text(), HasSubstr("rice quotients cut off"));
    EXPECT_THAT(parse(IndexForm::kRice, 7, 0, ones, 100).status.text(), HasSubstr("rice quotients with set padding"));
    EXPECT_THAT(parse(IndexForm::kRice, 1, 4, ones, 100).status.text(), HasSubstr("rice remainders with set padding"));
    EXPECT_THAT(parse(IndexForm::kRice, 8, 0, ones, 7).status.text(), HasSubstr("index 7: allowed is less than 7"));
    EXPECT_THAT(parse(IndexForm::kBitmap, 7, 0, ones, 7).status.text(), HasSubstr("bitmap with set padding"));
    EXPECT_THAT(parse(IndexForm::kBitmap, 7, 0, ones, 8).status.text(), HasSubstr("bitmap's ones 8"));
    EXPECT_THAT(parse(IndexForm::kBitmap, 8, 0, ones, 9).status.text(), HasSubstr("bitmap cut off"));
    EXPECT_THAT(parse(IndexForm::kRaw32, 1, 0, ones, 9).status.text(), HasSubstr("index words cut off"));
    const auto words = [](std::initializer_list<std::uint32_t> values) {
        Bytes bytes;
        for (const auto value : values) ByteWriter(bytes).write(value);
        return bytes;
    };
    EXPECT_TRUE(parse(IndexForm::kRaw32, 2, 0, words({3, 8}), 9).status.is_ok());
    EXPECT_THAT(parse(IndexForm::kRaw32, 2, 0, words({3, 3}), 9).status.text(),
                HasSubstr("index 3: allowed is ascending"));
    EXPECT_THAT(parse(IndexForm::kRaw32, 2, 0, words({3, 9}), 9).status.text(), HasSubstr("index 9"));
    EXPECT_THAT(parse(IndexForm::kRaw32, 2, 0, words({3, ~0U}), 9).status.text(), HasSubstr("index 4294967295"));
}
TEST(IndexCoder, Huge_quotients_and_remainders_do_not_wrap_into_range) {
    // 2^20 zeros before the one, times 2^20: far beyond 32 bits, and congruent to 0 in 32 bits.
    Bytes body(3 + (std::size_t{1} << 17U) + 1);
    body.back() = std::byte{1};
    const auto parsed = parse(IndexForm::kRice, 1, 20, body, kChunkElements);
    EXPECT_THAT(parsed.status.text(), HasSubstr("index 1099511627776"));
}

}  // namespace
}  // namespace gradsieve::codec

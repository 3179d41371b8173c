#include "codec/chunk_coder.hpp"

#include "codec/decoder.hpp"
#include "codec/payload.hpp"
#include "tests/codec/payload_cases.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <numeric>

namespace gradsieve::test {
namespace {

codec::Pipeline pipeline(const char* text) { return *codec::parse_pipeline(text); }

TEST(ChunkCoder, Nothing_to_send_writes_nothing) {
    for (const auto& pipeline_case : all_pipeline_cases()) {
        if (pipeline_case.is_dense || is_keyed(pipeline_case.pipeline.selector)) continue;
        const auto coded = code(pipeline_case.pipeline, 100, false, {3, 9}, {0.0F, -0.0F});
        EXPECT_TRUE(coded.payload.empty()) << pipeline_case.text;
        EXPECT_EQ(float_bits(coded.decoded[0]) | float_bits(coded.decoded[1]), 0U);
        EXPECT_TRUE(code(pipeline_case.pipeline, 100, false, {}, {}).payload.empty()) << pipeline_case.text;
    }
    EXPECT_TRUE(code(pipeline("all | pow2"), 2, true, {}, {0.0F, 1e-40F}).payload.empty());
}
TEST(ChunkCoder, Scratch_from_other_calls_changes_nothing_and_settles) {
    codec::CodeScratch scratch;
    std::vector<float> decoded(kChunkElements);
    const auto run = [&](const PipelineCase& pipeline_case, const CaseData& data, std::size_t elements) {
        codec::ChunkSelection selection;
        selection.chunk_elements = elements;
        selection.is_dense = pipeline_case.is_dense;
        selection.indices = data.indices;
        set_random(pipeline_case.pipeline, selection);
        const codec::SelectionRule rule = rule_of(pipeline_case.pipeline, elements);
        if (is_keyed(pipeline_case.pipeline.selector)) selection.keyed = &rule;
        selection.values = data.values;
        for (const float value : data.values)
            selection.tensor_maximum = std::max(selection.tensor_maximum, std::abs(value));
        return bytes_of(codec::code_chunk(pipeline_case.pipeline, selection, scratch, decoded));
    };
    const auto run_all = [&] {
        for (const auto& pipeline_case : all_pipeline_cases())
            for (const Shape shape : {Shape::kTiny, Shape::kGaussian})
                for (const std::size_t elements : {5000, 7}) {
                    const CaseData data = make_case_data(pipeline_case, shape, elements, 3);
                    ASSERT_EQ(run(pipeline_case, data, elements),
                              code(pipeline_case.pipeline, elements, pipeline_case.is_dense, data.indices, data.values)
                                  .payload)
                        << pipeline_case.text;
                }
    };
    run_all();
    const auto memory = [&] {
        return std::tuple(scratch.indices.data(), scratch.decoded.data(), scratch.gaps.data(), scratch.codes.data());
    };
    const auto settled = memory();
    run_all();
    EXPECT_EQ(memory(), settled) << "scratch was allocated again";
}
TEST(ChunkCoder, Decoded_values_may_overwrite_the_values) {
    for (const auto& pipeline_case : all_pipeline_cases()) {
        const CaseData data = make_case_data(pipeline_case, Shape::kGaussian, 5000, 3);
        const Coded expected = code(pipeline_case.pipeline, 5000, pipeline_case.is_dense, data.indices, data.values);
        std::vector<float> values = data.values;
        codec::ChunkSelection selection;
        selection.chunk_elements = 5000;
        selection.is_dense = pipeline_case.is_dense;
        selection.indices = data.indices;
        set_random(pipeline_case.pipeline, selection);
        const codec::SelectionRule rule = rule_of(pipeline_case.pipeline, 5000);
        if (is_keyed(pipeline_case.pipeline.selector)) selection.keyed = &rule;
        selection.values = values;
        for (const float value : values) selection.tensor_maximum = std::max(selection.tensor_maximum, std::abs(value));
        codec::CodeScratch scratch;
        const Bytes payload = bytes_of(codec::code_chunk(pipeline_case.pipeline, selection, scratch, values));
        EXPECT_EQ(payload, expected.payload) << pipeline_case.text;
        EXPECT_EQ(values, expected.decoded) << pipeline_case.text;
    }
}
TEST(ChunkCoder, Full_list_becomes_the_dense_form_under_auto) {
    const auto values = make_values(Shape::kConstant, 1000, 1);
    std::vector<std::uint32_t> indices(1000);
    std::iota(indices.begin(), indices.end(), 0U);
    EXPECT_EQ(code(pipeline("topk(1) | bf16"), 1000, false, indices, values).payload,
              code(pipeline("all | bf16"), 1000, true, {}, values).payload);
    EXPECT_EQ(code(pipeline("topk(1) | pow2"), 1000, false, indices, values).payload.size(), 5U + 500U);
    EXPECT_EQ(code(pipeline("topk(1) | bf16 | bitmap"), 1000, false, indices, values).payload.size(),
              5U + 125U + 2000U);
}
TEST(ChunkCoder, Dense_pow2_sends_what_is_in_range) {
    const auto coded = code(pipeline("all | pow2"), 4, true, {}, {1.0F, 0.0F, -0.25F, 0.0009F});
    EXPECT_EQ(coded.decoded, (std::vector<float>{1.0F, 0, -0.25F, 0}));
    EXPECT_TRUE(codec::validate_chunk(coded.payload, 4).is_ok());
}
TEST(ChunkCoder, Paper_word_is_sign_octaves_index) {
    const auto coded = code(pipeline("topk(0.1) | pow2(bits=4) | raw32"), 70000, false, {5, 69999}, {-0.5F, 1.0F});
    const auto bytes = octets(coded.payload);
    // Two tiles of exponents 0x7e and 0x7f; header 02 63 03, count, parameters, base.
    ASSERT_EQ(bytes.size(), 6U + 8U + 1U);
    EXPECT_EQ((std::vector<std::uint8_t>(bytes.begin() + 6, bytes.begin() + 10)),
              (std::vector<std::uint8_t>{5, 0, 0, 0x80}));
    EXPECT_EQ((std::vector<std::uint8_t>(bytes.begin() + 10, bytes.begin() + 14)),
              (std::vector<std::uint8_t>{0x6F, 0x11, 0x01, 0x00}));
}
TEST(ChunkCoder, Dense_sign_is_exact_on_constants_and_single_elements) {
    for (const std::size_t count : {1U, 3U, 4096U, 5000U}) {
        const std::vector<float> values(count, -0.1F);
        EXPECT_EQ(code(pipeline("all | sign"), count, true, {}, values).decoded, values) << count;
    }
    const auto zeros = code(pipeline("all | sign"), 3, true, {}, {0.0F, -0.0F, 0.0F});
    for (const float value : zeros.decoded) EXPECT_EQ(float_bits(value), 0U);
    EXPECT_EQ(octets(zeros.payload), (std::vector<std::uint8_t>{2, 4, 0, 0, 0, 0, 0, 0}));
}

TEST(ChunkCoder, Any_list_round_trips_through_any_pipeline) {
    EXPECT_TRUE(rc::check("round trip", [] {
        const auto& cases = all_pipeline_cases();
        const auto& pipeline_case = cases[*rc::gen::inRange<std::size_t>(0, cases.size())];
        const auto elements = *rc::gen::element<std::size_t>(1, 2, 63, 64, 65, 4096, 4097, 20000);
        const auto parts = *rc::gen::element(100U, 10000U, 200000U, 999999U);
        const auto seed = *rc::gen::arbitrary<std::uint64_t>();
        const auto shape = all_shapes()[*rc::gen::inRange<std::size_t>(0, all_shapes().size())];
        CaseData data;
        if (!pipeline_case.is_dense) data.indices = make_indices(elements, parts, seed);
        if (is_keyed(pipeline_case.pipeline.selector)) data = make_case_data(pipeline_case, shape, elements, seed);
        data.values = make_values(shape, pipeline_case.is_dense ? elements : data.indices.size(), seed);
        const Coded coded = code(pipeline_case.pipeline, elements, pipeline_case.is_dense, data.indices, data.values);
        std::vector<float> expected(elements, 0.0F);
        for (std::size_t i = 0; i < data.values.size(); ++i)
            expected[pipeline_case.is_dense ? i : data.indices[i]] = 0.0F + coded.decoded[i];
        if (coded.payload.empty()) {
            RC_ASSERT(expected == std::vector<float>(elements, 0.0F));
            return;
        }
        std::vector<float> memory(elements, 0.0F);
        codec::ResultTensor tensor(1, memory.data(), elements);
        const codec::ChunkView chunk{0, coded.payload};
        const codec::Contribution contribution{1.0F, std::span(&chunk, 1)};
        RC_ASSERT(tensor.decode_average(1, std::span(&contribution, 1)).is_ok());
        for (std::size_t i = 0; i < elements; ++i) RC_ASSERT(float_bits(memory[i]) == float_bits(expected[i]));
    }));
}

}  // namespace
}  // namespace gradsieve::test

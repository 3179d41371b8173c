// Every quantizer x coder x size x shape: what the encoder says receivers decode, what the fast decoder decodes and
// what the educational decoder decodes are the same bits; sizes are the formula's.
#include "codec/decoder.hpp"
#include "codec/payload.hpp"
#include "codec/payload_reader.hpp"
#include "tests/codec/educational_decoder.hpp"
#include "tests/codec/payload_cases.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace gradsieve::test {
namespace {

/// The elements of a payload by the fast reader, through ResultTensor with factor 1.
std::vector<float> fast_decode(const Bytes& payload, std::size_t elements) {
    std::vector<float> memory(elements, 0.0F);
    codec::ResultTensor tensor(1, memory.data(), elements);
    const codec::ChunkView chunk{0, payload};
    const codec::Contribution contribution{1.0F, std::span(&chunk, 1)};
    const auto result = tensor.decode_average(1, std::span(&contribution, 1));
    EXPECT_TRUE(result.is_ok()) << result.status().to_string();
    return memory;
}

void check_case(const PipelineCase& pipeline_case, Shape shape, std::size_t elements) {
    SCOPED_TRACE(pipeline_case.text + ", " + shape_name(shape) + ", n = " + std::to_string(elements));
    const CaseData data = make_case_data(pipeline_case, shape, elements, elements * 7 + 1);
    const Coded coded = code(pipeline_case.pipeline, elements, pipeline_case.is_dense, data.indices, data.values);
    std::vector<float> expected(elements, 0.0F);
    bool is_anything_sent = pipeline_case.is_dense &&
                            pipeline_case.pipeline.quantizer.kind != codec::QuantizerKind::kPow2 &&
                            pipeline_case.pipeline.quantizer.kind != codec::QuantizerKind::kInteger;
    is_anything_sent = is_anything_sent || is_keyed(pipeline_case.pipeline.selector);
    for (std::size_t i = 0; i < coded.decoded.size(); ++i) {
        ASSERT_TRUE(std::isfinite(coded.decoded[i])) << "element " << i << " was not written";
        is_anything_sent = is_anything_sent || coded.decoded[i] != 0.0F;
        // Averaging starts from +0, so -0 of an exact form comes out as +0.
        expected[pipeline_case.is_dense ? i : data.indices[i]] = 0.0F + coded.decoded[i];
    }
    ASSERT_EQ(coded.payload.empty(), !is_anything_sent);
    if (coded.payload.empty()) return;
    ASSERT_TRUE(codec::validate_chunk(coded.payload, elements).is_ok());
    const std::vector<float> fast = fast_decode(coded.payload, elements);
    for (std::size_t i = 0; i < elements; ++i)
        ASSERT_EQ(float_bits(fast[i]), float_bits(expected[i])) << "element " << i;

    const auto educational = educational_decode(octets(coded.payload), static_cast<std::uint32_t>(elements));
    ASSERT_TRUE(educational.has_value());
    std::size_t present = 0;
    for (std::size_t i = 0; i < coded.decoded.size(); ++i) {
        const auto index = pipeline_case.is_dense ? static_cast<std::uint32_t>(i) : data.indices[i];
        if (present == educational->size() || (*educational)[present].first != index) {
            ASSERT_EQ(float_bits(coded.decoded[i]), 0U) << "element " << index << " was promised but not sent";
            continue;
        }
        ASSERT_EQ(float_bits((*educational)[present].second), float_bits(coded.decoded[i])) << "element " << index;
        ++present;
    }
    ASSERT_EQ(present, educational->size()) << "the payload holds elements that were not selected";
}

TEST(PayloadConformance, Every_pipeline_and_shape_decodes_to_what_the_encoder_promised) {
    for (const auto& pipeline_case : all_pipeline_cases())
        for (const Shape shape : all_shapes())
            for (const std::size_t elements : {1, 7, 8, 31, 32, 33, 1023, 4095, 4096, 4101}) {
                check_case(pipeline_case, shape, elements);
                if (HasFatalFailure()) return;
            }
}
TEST(PayloadConformance, Whole_chunk_of_every_pipeline_decodes_to_what_the_encoder_promised) {
#ifdef __SANITIZE_ADDRESS__
    constexpr std::size_t kStride = 7;  // the page's decoder is slow, and instrumented it takes minutes for all of them
#else
    constexpr std::size_t kStride = 1;
#endif
    const auto cases = all_pipeline_cases();
    for (std::size_t place = 0; place < cases.size(); place += kStride) {
        check_case(cases[place], cases[place].is_dense ? Shape::kGaussian : Shape::kHeavyTailed, kChunkElements);
        if (HasFatalFailure()) return;
    }
}

// Sizes from the page's formula with an independent count of the variable parts.
std::uint64_t size_by_page(const std::vector<std::uint8_t>& payload, const EducationalElements& elements,
                           std::size_t n) {
    const unsigned quantizer = payload[1] & 31U;
    const bool is_rotated = payload[1] >> 5U == 7;
    const unsigned form = is_rotated ? 0 : payload[1] >> 5U;
    const bool has_value_byte = quantizer >= 3;
    const unsigned code_bits = has_value_byte ? (payload[2] & (quantizer == 10 ? 31U : 7U)) + 1 : 0;
    const unsigned scale_code = has_value_byte ? payload[2] >> 3U : 0;
    const std::uint64_t k = elements.size();
    std::uint64_t total = has_value_byte ? 3 : 2;
    if (quantizer == 11) total += 1;
    const auto header_begin = static_cast<std::size_t>(total);
    if (form != 0) total += k < 128 ? 1 : k < 16384 ? 2 : 3;
    const std::size_t parameter_at = form == 0 ? header_begin : static_cast<std::size_t>(total);
    const unsigned parameters = form != 0 || quantizer == 3 ? payload[parameter_at] : 0;
    total += form != 0 || quantizer == 3 ? 1 : 0;
    total += quantizer == 3 ? 1 : 0;
    total += quantizer == 9 || quantizer == 10 || (quantizer == 4 && scale_code == 1) ? 4 : 0;
    total += is_rotated ? 8 : 0;
    std::uint64_t quotients = 0;
    std::uint32_t next = 0;
    std::map<std::uint32_t, float> tile_top;
    for (const auto& [index, value] : elements) {
        quotients += (index - next) >> (parameters & 31U);
        next = index + 1;
        tile_top[index / 4096] = std::max(tile_top[index / 4096], std::abs(value));
    }
    if (form == 1) total += (k * (parameters & 31U) + 7) / 8 + (k + quotients + 7) / 8;
    if (form == 2) total += (n + 7) / 8;
    if (form == 3) total += 4 * k;
    if (quantizer == 5) total += tile_top.size() * (form == 0 ? 8 : 4);
    if (form == 4) total += (k * (parameters & 31U) + 7) / 8 + (k + ((n - 1) >> (parameters & 31U)) + 7) / 8;
    if (form == 5) total += 8;
    if (form == 6) total += 16;
    if (quantizer == 11) total += (n + (64U << payload[3]) - 1) / (64U << payload[3]) * 8;
    if (quantizer == 8 || quantizer == 9 || (quantizer == 4 && scale_code == 0))
        total += tile_top.size() * (form == 0 ? 4 : 2);
    if (quantizer == 3 && parameters >> 5U != 7) {
        float top = 0;
        for (const auto& [tile, value] : tile_top) top = std::max(top, value);
        std::uint64_t bits = 0;
        for (const auto& [tile, value] : tile_top)
            bits += (static_cast<unsigned>(std::ilogb(top) - std::ilogb(value)) >> (parameters >> 5U)) + 1 +
                    (parameters >> 5U);
        total += (bits + 7) / 8;
    }
    const bool is_paper_word = quantizer == 3 && form == 3 && code_bits == 4;
    const unsigned width = quantizer == 0 ? 32 : quantizer == 1 || quantizer == 2 ? 16 : is_paper_word ? 0 : code_bits;
    return total + (k * width + 7) / 8;
}

TEST(PayloadSize, Every_payload_is_as_long_as_the_page_says) {
    for (const auto& pipeline_case : all_pipeline_cases())
        for (const Shape shape : {Shape::kGaussian, Shape::kHeavyTailed})
            for (const std::size_t elements : {1, 9, 4096, 20000}) {
                const CaseData data = make_case_data(pipeline_case, shape, elements, 99);
                const Coded coded =
                    code(pipeline_case.pipeline, elements, pipeline_case.is_dense, data.indices, data.values);
                if (coded.payload.empty() && pipeline_case.pipeline.quantizer.kind == codec::QuantizerKind::kInteger)
                    continue;  // nothing is as large as a step
                const auto bytes = octets(coded.payload);
                const auto decoded = educational_decode(bytes, static_cast<std::uint32_t>(elements));
                ASSERT_TRUE(decoded.has_value()) << pipeline_case.text;
                const auto plain = *educational_plain(bytes, static_cast<std::uint32_t>(elements));
                ASSERT_EQ(plain.size(), size_by_page(plain, *decoded, elements))
                    << pipeline_case.text << " " << elements;
                if (plain != bytes) {
                    ASSERT_LT(bytes.size(), plain.size()) << pipeline_case.text << " " << elements;
                }
            }
}

TEST(PayloadSize, Auto_is_never_longer_than_a_named_coder) {
    for (const std::string quantizer :
         {"f32", "f16", "bf16", "pow2", "pow2(bits=7)", "sign", "sign(scale=1)", "natural"})
        for (const std::uint32_t parts : {10U, 1000U, 10000U, 100000U, 300000U, 700000U, 1000000U}) {
            const auto indices = make_indices(30000, parts, 5);
            if (indices.empty()) continue;
            const auto values = make_values(Shape::kGaussian, indices.size(), 6);
            const auto bytes_with = [&](const std::string& coder) {
                return code(*codec::parse_pipeline("topk(0.5) | " + quantizer + " | " + coder), 30000, false, indices,
                            values)
                    .payload.size();
            };
            const auto smallest = std::min({bytes_with("rice"), bytes_with("bitmap"), bytes_with("raw32")});
            EXPECT_LE(bytes_with("auto"), smallest) << quantizer << " " << parts;
            EXPECT_LE(bytes_with("auto"), bytes_with("elias_fano") + 1) << quantizer << " " << parts;
        }
}

// Best Golomb-Rice code of a uniform random support, bits per index: r = 3, 6, 9, 13 at these fractions.
TEST(PayloadSize, Rice_indices_of_random_supports_cost_what_theory_says) {
    struct Row {
        std::uint32_t parts_per_million;
        double bits;
    };
    for (const Row row : {Row{100000, 4.756}, Row{10000, 8.108}, Row{1000, 11.495}}) {
        const auto indices = make_indices(kChunkElements, row.parts_per_million, 11);
        const std::vector<float> values(indices.size(), 1.0F);
        const auto payload =
            code(*codec::parse_pipeline("topk(0.1) | sign(scale=1) | rice"), kChunkElements, false, indices, values)
                .payload;
        const auto count = static_cast<double>(indices.size());
        const double index_bits = 8.0 * static_cast<double>(payload.size()) / count - 1.0;
        EXPECT_NEAR(index_bits, row.bits, 0.01 * row.bits + 8.0 * 12 / count) << row.parts_per_million;
    }
}

// l + 1 + 1/(f 2^l) bits per index with l = floor(log2(1/f)).
TEST(PayloadSize, Elias_fano_indices_cost_what_theory_says_of_any_support) {
    struct Row {
        std::uint32_t parts_per_million;
        double bits;
    };
    for (const Row row : {Row{100000, 5.25}, Row{10000, 8.5625}, Row{1000, 11.953}, Row{100, 15.221}}) {
        const auto indices = make_indices(kChunkElements, row.parts_per_million, 11);
        const std::vector<float> values(indices.size(), 1.0F);
        const auto payload = code(*codec::parse_pipeline("topk(0.1) | sign(scale=1) | elias_fano"), kChunkElements,
                                  false, indices, values)
                                 .payload;
        const auto count = static_cast<double>(indices.size());
        const double index_bits = 8.0 * static_cast<double>(payload.size()) / count - 1.0;
        // The support's own density, which the formula is steep in where few are kept.
        const double density = count / static_cast<double>(kChunkElements);
        const double low_bits = std::floor(std::log2(1 / density));
        EXPECT_NEAR(index_bits, low_bits + 1 + 1 / (density * std::exp2(low_bits)), 8.0 * 13 / count)
            << row.parts_per_million;
        EXPECT_NEAR(index_bits, row.bits, 0.05 * row.bits + 8.0 * 13 / count) << row.parts_per_million;
    }
}

TEST(PayloadSize, Ten_bf16_elements_cost_22_bytes) {
    const auto values = make_values(Shape::kGaussian, 10, 1);
    EXPECT_EQ(code(*codec::parse_pipeline("all | bf16"), 10, true, {}, values).payload.size(), 22U);
}
TEST(PayloadSize, Tile_exponents_of_a_hundredth_cost_less_than_a_twentieth_of_a_bit_per_element) {
    const auto indices = make_indices(kChunkElements, 10000, 3);
    const auto values = make_values(Shape::kGaussian, indices.size(), 4);
    const auto size_with = [&](const std::string& quantizer) {
        return code(*codec::parse_pipeline("topk(0.01) | " + quantizer + " | rice"), kChunkElements, false, indices,
                    values)
            .payload.size();
    };
    const auto without = size_with("pow2(bits=8, scope=tensor)");
    const auto with = size_with("pow2(bits=8)");
    EXPECT_GE(with, without);
    EXPECT_LT(8.0 * static_cast<double>(with - without) / static_cast<double>(indices.size()), 0.05);
}

}  // namespace
}  // namespace gradsieve::test

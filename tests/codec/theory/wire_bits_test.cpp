// Bits on the wire of a tensor of 2^24 elements: payloads as the encoder makes them of normal numbers, with the record
// and frame headers around them.
#include "codec/pipeline_trial.hpp"
#include "exchange/record.hpp"
#include "transport/frame.hpp"
#include "wire_parts.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace gradsieve::codec {
namespace {

constexpr ElementCount kElements = ElementCount{1} << 24U;
constexpr std::uint64_t kSeed = 73;
/// Records gather into frames of about this many bytes (docs/wire-format-jobs.md).
constexpr std::uint64_t kFrameBytes = 256 * 1024;
/// Job hash and flags in front of a frame's records.
constexpr std::uint64_t kRecordsPrefixBytes = 9;

/// One step of a codec, coded.
struct Coded {
    WireParts parts;
    std::uint64_t wire_bytes = 0;  ///< with record and frame headers
};
Coded code_noise(const std::string& codec) {
    auto trial = PipelineTrial::of_noise(*parse_pipeline(codec), kElements, kSeed);
    EXPECT_TRUE(trial.is_ok() && trial->step().is_ok()) << codec;
    Coded coded{wire_parts(trial->payloads(), kElements), 0};
    Bytes headers;
    for (const ChunkPayload& chunk : trial->payloads())
        exchange::build_record_header(headers, {1, exchange::RecordKind::kChunk, chunk.chunk_index, 0,
                                                static_cast<std::uint32_t>(chunk.bytes.size())});
    coded.wire_bytes = coded.parts.total() + headers.size();
    // A record that is larger than a frame should be leaves alone.
    const std::uint64_t frames = std::min(coded.parts.payloads, coded.wire_bytes / kFrameBytes + 1);
    coded.wire_bytes += std::max<std::uint64_t>(frames, 1) * (transport::kFrameHeaderBytes + kRecordsPrefixBytes);
    return coded;
}

TEST(WireBits, Signs_of_all_elements_cost_little_more_than_a_bit) {
    for (const char* codec :
         {"all | sign", "all | sign(scale=0.01)", "all | sign(scale=two_mean)", "all | sign(scale=none)"}) {
        const Coded coded = code_noise(codec);
        const double bits = 8.0 * static_cast<double>(coded.wire_bytes) / kElements;
        EXPECT_EQ(coded.parts.elements, kElements);
        RecordProperty(codec, std::to_string(bits));
        EXPECT_LE(bits, 1.05) << codec;
        EXPECT_GT(bits, 1.0) << codec;
    }
}
class WireIndexBits : public ::testing::TestWithParam<double> {};

/// Payload headers are counted; records' are not.
TEST_P(WireIndexBits, Cost_at_most_a_tenth_more_than_their_entropy) {
    const double density = GetParam();
    const auto count = static_cast<double>(kElements);
    for (const char* coder : {"auto", "rice"}) {
        const Coded coded = code_noise("topk(" + std::to_string(density) + ") | f32 | " + coder);
        ASSERT_EQ(coded.parts.elements, static_cast<std::uint64_t>(std::floor(density * count)));
        const auto kept = static_cast<double>(coded.parts.elements);
        const double bits = 8.0 * static_cast<double>(coded.parts.header_bytes + coded.parts.index_bytes) / kept;
        RecordProperty(coder, std::to_string(bits));
        EXPECT_LE(bits, 1.1 * index_entropy(density)) << coder << " at density " << density;
        EXPECT_GE(bits, 0.99 * index_entropy(density)) << coder << ": what random supports allow";
    }
}
/// codecs.md of this project, and Elias 1974: at most a bit more than the Rice codes of a random support.
TEST_P(WireIndexBits, Of_elias_fano_are_what_its_formula_says) {
    const double density = GetParam();
    const Coded coded = code_noise("topk(" + std::to_string(density) + ") | f32 | elias_fano");
    const auto kept = static_cast<double>(coded.parts.elements);
    const double bits = 8.0 * static_cast<double>(coded.parts.index_bytes) / kept;
    RecordProperty("elias_fano", std::to_string(bits));
    const double low_bits = std::floor(std::log2(1 / density));
    // Chunks' counts differ around the mean, and each chunk has its own number of lower bits.
    EXPECT_NEAR(bits, low_bits + 1 + 1 / (density * std::exp2(low_bits)), 0.01 * bits + 16 / (1e6 * density));
    EXPECT_LE(bits, 1.15 * index_entropy(density));
}
INSTANTIATE_TEST_SUITE_P(Densities, WireIndexBits, ::testing::Values(1e-1, 1e-2, 1e-3, 1e-4));

TEST(WireBits, A_hundredth_with_four_bits_each_costs_less_than_13_5_bits_an_element) {
    const std::pair<const char*, const char*> codecs[] = {{"pow2", "topk(0.01) | pow2(bits=4)"},
                                                          {"pow2_tensor", "topk(0.01) | pow2(bits=4, scope=tensor)"},
                                                          {"dither", "topk(0.01) | dither(levels=7)"}};
    for (const auto& [name, codec] : codecs) {
        const Coded coded = code_noise(codec);
        const double bits = 8.0 * static_cast<double>(coded.wire_bytes) / static_cast<double>(coded.parts.elements);
        RecordProperty(name, std::to_string(bits));
        EXPECT_LE(bits, 13.5) << codec;
        EXPECT_GE(bits, 4 + 0.99 * index_entropy(0.01)) << codec;
    }
}
struct ScaleRow {
    double density;
    double most_exponents;  ///< bits per kept element, pow2
    double most_scales;     ///< sign and dither: 16 bits for each tile that holds a kept element
};
class WireScaleBits : public ::testing::TestWithParam<ScaleRow> {};

/// The table of docs/codecs.md.
TEST_P(WireScaleBits, Cost_more_per_element_the_fewer_are_sent) {
    const ScaleRow& row = GetParam();
    const auto bits = [&](const std::string& quantizer) {
        const WireParts parts = code_noise("topk(" + std::to_string(row.density) + ") | " + quantizer).parts;
        return 8.0 * static_cast<double>(parts.scale_bytes) / static_cast<double>(parts.elements);
    };
    EXPECT_LE(bits("pow2(bits=4)"), row.most_exponents);
    const double held = 1 - std::exp(-4096 * row.density);  // share of tiles that hold an element, nearly
    for (const char* quantizer : {"sign", "dither(levels=7)"}) {
        EXPECT_LE(bits(quantizer), row.most_scales) << quantizer;
        EXPECT_NEAR(bits(quantizer) / (16 * held / (4096 * row.density)), 1, 0.03) << quantizer;
    }
}
INSTANTIATE_TEST_SUITE_P(Densities, WireScaleBits,
                         ::testing::Values(ScaleRow{1e-1, 0.01, 0.04}, ScaleRow{1e-2, 0.05, 0.4},
                                           ScaleRow{1e-3, 0.45, 4.0}, ScaleRow{1e-4, 3.5, 13.3}),
                         [](const auto& row) { return "row" + std::to_string(row.index); });

}  // namespace
}  // namespace gradsieve::codec

#include "codec/entropy_coder.hpp"

#include "codec/bit_stream.hpp"
#include "codec/decoder.hpp"
#include "codec/pipeline_trial.hpp"
#include "tests/codec/educational_decoder.hpp"
#include "tests/codec/payload_cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace gradsieve::test {
namespace {

using testing::HasSubstr;

codec::Pipeline without_entropy(codec::Pipeline pipeline) {
    pipeline.has_entropy = false;
    return pipeline;
}

TEST(EntropyCoder, Leaves_what_is_decoded_and_the_payload_behind_it_as_they_are) {
    std::size_t coded_payloads = 0;
    for (const auto& pipeline_case : all_pipeline_cases()) {
        if (!pipeline_case.pipeline.has_entropy) continue;
        for (const Shape shape : all_shapes())
            for (const std::size_t elements : {1, 33, 1023, 4101, 20000}) {
                SCOPED_TRACE(pipeline_case.text + ", " + shape_name(shape) + ", n = " + std::to_string(elements));
                const CaseData data = make_case_data(pipeline_case, shape, elements, elements + 5);
                const Coded coded =
                    code(pipeline_case.pipeline, elements, pipeline_case.is_dense, data.indices, data.values);
                const Coded plain = code(without_entropy(pipeline_case.pipeline), elements, pipeline_case.is_dense,
                                         data.indices, data.values);
                ASSERT_TRUE(std::ranges::equal(coded.decoded, plain.decoded, {}, float_bits, float_bits));
                ASSERT_LE(coded.payload.size(), plain.payload.size());
                if (coded.payload.size() == plain.payload.size()) {
                    ASSERT_EQ(coded.payload, plain.payload);
                    continue;
                }
                ++coded_payloads;
                ASSERT_EQ(educational_plain(octets(coded.payload), static_cast<std::uint32_t>(elements)),
                          octets(plain.payload));
            }
    }
    EXPECT_GT(coded_payloads, 100U);
}

/// Payloads of three steps, and the averages of the last one with its digest.
struct Steps {
    std::vector<Bytes> payloads;
    std::vector<double> errors;
    std::uint64_t bytes = 0;
};
Steps run_steps(const codec::Pipeline& pipeline, ElementCount elements) {
    auto trial = codec::PipelineTrial::of_noise(pipeline, elements, 11);
    Steps steps;
    for (int step = 0; step < 3; ++step) {
        EXPECT_TRUE(trial.is_ok() && trial->step().is_ok() && trial->decode().is_ok());
        steps.errors.push_back(trial->normalized_error());
        for (const auto& chunk : trial->payloads()) {
            steps.payloads.push_back(bytes_of(chunk.bytes));
            steps.bytes += chunk.bytes.size();
        }
    }
    return steps;
}

TEST(EntropyCoder, Leaves_residuals_as_they_are) {
    for (const char* text : {"all | natural", "all | dither", "all | ternary", "all | rounding", "all | pow2",
                             "all | exponential_dither", "topk(0.1) | pow2", "variance(0.5) | natural",
                             "randk(0.3) | dither(31)", "momentum(0.9) | topk(0.1) | natural"}) {
        const auto plain_pipeline = *codec::parse_pipeline(text);
        const auto pipeline = *codec::parse_pipeline(std::string(text) + " | entropy");
        EXPECT_EQ(without_entropy(pipeline), plain_pipeline);
        constexpr ElementCount kElements = kChunkElements + 50000;
        const Steps coded = run_steps(pipeline, kElements);
        const Steps plain = run_steps(plain_pipeline, kElements);
        EXPECT_EQ(coded.errors, plain.errors) << text;
        EXPECT_LT(coded.bytes, plain.bytes) << text;
        // Every later payload follows from the residuals before it.
        ASSERT_EQ(coded.payloads.size(), plain.payloads.size()) << text;
        for (std::size_t at = 0; at < plain.payloads.size(); ++at) {
            const ElementCount elements = plain.payloads.size() == 3 || at % 2 == 0 ? kChunkElements : 50000;
            EXPECT_EQ(educational_plain(octets(coded.payloads[at]), static_cast<std::uint32_t>(elements)),
                      octets(plain.payloads[at]))
                << text << ", payload " << at;
        }
    }
}

/// What theory says of a payload's value codes.
struct CodeStatistics {
    double count = 0;
    double entropy = 0;  ///< bits of all codes, Shannon's bound
    double largest_share = 0;
    double plain_bits = 0;
    double table_bits = 0;
};
CodeStatistics statistics_of(const Bytes& plain) {
    const codec::PayloadHeader header = codec::parse_header(plain, kChunkElements)->header;
    std::vector<std::uint8_t> codes(header.count);
    const std::size_t bytes = codec::bytes_of_bits(std::uint64_t{header.count} * header.code_bits);
    codec::unpack_fields(ByteView(plain).last(bytes), header.count, header.code_bits, codes.data());
    std::vector<double> counts(256);
    for (const std::uint8_t code : codes) ++counts[code];
    CodeStatistics found;
    found.count = header.count;
    found.plain_bits = 8.0 * static_cast<double>(bytes);
    found.table_bits = 4.0 * static_cast<double>(1U << header.code_bits);
    for (const double count : counts)
        if (count > 0) found.entropy += count * std::log2(found.count / count);
    found.largest_share = *std::ranges::max_element(counts) / found.count;
    return found;
}

TEST(EntropyCoder, Comes_close_to_the_entropy_of_the_codes) {
    struct Row {
        const char* text;
        double most;  ///< over the entropy, the table apart
    };
    // Three levels are coarse for whole bits: 1, 2 and 2 of them.
    for (const auto& [text, most] : {Row{"all | natural", 1.03}, Row{"all | dither", 1.04}, Row{"all | ternary", 1.12},
                                     Row{"all | exponential_dither(15)", 1.03}, Row{"all | rounding", 1.03},
                                     Row{"topk(0.01) | pow2(bits=4)", 1.05}, Row{"topk(0.01) | natural", 1.15}}) {
        const auto pipeline = *codec::parse_pipeline(std::string(text) + " | entropy");
        const Bytes plain = run_steps(without_entropy(pipeline), kChunkElements).payloads.back();
        const Bytes coded = run_steps(pipeline, kChunkElements).payloads.back();
        const CodeStatistics codes = statistics_of(plain);
        const double bits =
            codes.plain_bits + 8.0 * (static_cast<double>(coded.size()) - static_cast<double>(plain.size()));
        RecordProperty(text, "plain " + std::to_string(codes.plain_bits / codes.count) + ", entropy " +
                                 std::to_string(codes.entropy / codes.count) + ", coded " +
                                 std::to_string(bits / codes.count));
        EXPECT_GE(bits, codes.entropy) << text;
        EXPECT_LE(bits, codes.entropy * most + codes.table_bits) << text;
        // Gallager 1978, Variations on a Theme by Huffman: the redundancy of a code is at most the largest probability
        // plus 0.086 bits; and each 1,024 codes have a length and a padded stream.
        const double streams = std::ceil(codes.count / codec::kEntropyGroup);
        EXPECT_LE(bits, codes.entropy + codes.count * (codes.largest_share + 0.0861) + streams * 23 + codes.table_bits)
            << text;
    }
}

TEST(Huffman, Lengths_are_those_of_a_whole_code_and_at_most_12) {
    std::uint64_t state = 3;
    for (int round = 0; round < 2000; ++round) {
        const std::size_t symbols = std::size_t{1} << (2 + random_word(state) % 7);
        std::vector<std::uint32_t> counts(symbols);
        const unsigned spread = random_word(state) % 21;
        for (auto& count : counts)
            count =
                random_word(state) % 4 == 0 ? 0 : static_cast<std::uint32_t>(1 + random_word(state) % (1U << spread));
        counts[random_word(state) % symbols] += 1;
        const auto lengths = codec::huffman_lengths(counts);
        EXPECT_TRUE(codec::are_huffman_lengths(std::span(lengths).first(symbols)));
        for (std::size_t symbol = 0; symbol < symbols; ++symbol)
            EXPECT_EQ(lengths[symbol] == 0, counts[symbol] == 0) << symbol;
    }
    std::vector<std::uint32_t> fibonacci = {1, 1};  // unlimited, the longest code of n symbols has n - 1 bits
    while (fibonacci.size() < 28) fibonacci.push_back(fibonacci.back() + fibonacci[fibonacci.size() - 2]);
    const auto lengths = codec::huffman_lengths(fibonacci);
    EXPECT_EQ(*std::ranges::max_element(lengths), 12);
    EXPECT_TRUE(codec::are_huffman_lengths(lengths));
}
TEST(Huffman, Known_lengths_and_codes) {
    const std::vector<std::uint32_t> counts = {10, 1, 1, 0, 4, 2, 0, 0};
    const auto lengths = codec::huffman_lengths(counts);
    EXPECT_THAT(std::vector<int>(lengths.begin(), lengths.begin() + 8), testing::ElementsAre(1, 4, 4, 0, 2, 3, 0, 0));
    const auto codes = codec::huffman_codes(std::span(lengths).first(8));
    EXPECT_EQ(codes[0].bits, 0b0);
    EXPECT_EQ(codes[4].bits, 0b01);    // 10, first bit lowest
    EXPECT_EQ(codes[5].bits, 0b011);   // 110
    EXPECT_EQ(codes[1].bits, 0b0111);  // 1110
    EXPECT_EQ(codes[2].bits, 0b1111);
}
TEST(Huffman, Lengths_that_are_no_whole_code_are_none) {
    const auto are = [](std::vector<std::uint8_t> lengths) { return codec::are_huffman_lengths(lengths); };
    EXPECT_TRUE(are({0, 1, 0, 0}));
    EXPECT_TRUE(are({2, 2, 2, 2}));
    EXPECT_FALSE(are({0, 0, 0, 0}));
    EXPECT_FALSE(are({0, 2, 0, 0}));
    EXPECT_FALSE(are({2, 2, 2, 0}));
    EXPECT_FALSE(are({1, 1, 1, 0}));
    EXPECT_FALSE(are({13, 1, 0, 0}));
    EXPECT_FALSE(are({2, 2, 0, 0}));
}

/// 100 values of two bits, four of them not zero: table, one length, scale, stream.
Bytes small_payload() {
    std::vector<float> values(100, 0.0F);
    for (const std::size_t at : {3, 30, 31, 99}) values[at] = at == 31 ? -1.0F : 1.0F;
    return code(*codec::parse_pipeline("all | dither(levels=1, feedback=none) | entropy"), 100, true, {}, values)
        .payload;
}
std::string refusal(const Bytes& payload, ElementCount elements = 100) {
    return codec::validate_chunk(payload, elements).to_string();
}

TEST(EntropyCoder, Malformed_payloads_are_refused_by_what_is_wrong) {
    const Bytes good = small_payload();
    ASSERT_EQ(static_cast<unsigned>(good[2]), 0x21U);
    ASSERT_TRUE(codec::validate_chunk(good, 100).is_ok());
    const auto with = [&](std::size_t at, unsigned byte) {
        Bytes bad = good;
        bad[at] = static_cast<std::byte>(byte);
        return bad;
    };
    EXPECT_THAT(refusal(with(0, 2)), HasSubstr("payload version of quantizer 8 2: allowed is 5"));
    EXPECT_THAT(refusal(with(2, 0x61)), HasSubstr("reserved value bits 1"));
    EXPECT_THAT(refusal(with(2, 0x20)), HasSubstr("coded values of one bit"));
    EXPECT_THAT(refusal(with(3, 0xD1)), HasSubstr("code length 13: allowed is 0 to 12"));
    EXPECT_THAT(refusal(with(3, 0x11)), HasSubstr("code lengths that leave codes over or use some twice"));
    EXPECT_THAT(refusal(with(3, 0)), HasSubstr("code lengths"));
    EXPECT_THAT(refusal(with(6, 0xFF)), HasSubstr("length of the streams"));
    const auto streams = static_cast<unsigned>(good[5]);
    EXPECT_THAT(refusal(with(5, streams - 1)), HasSubstr("stream of coded values 0"));
    EXPECT_THAT(refusal(with(good.size() - 1, 0xFF)), HasSubstr("stream of coded values 0"));
    Bytes cut(good.begin(), good.begin() + 5);
    EXPECT_THAT(refusal(cut), HasSubstr("bytes behind the header 2: allowed is 4 or more"));
    Bytes longer = good;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(codec::validate_chunk(longer, 100).is_ok());
    EXPECT_THAT(refusal(with(0, 6)), HasSubstr("payload version 6"));
    // Not shorter than plain codes: another spelling of what has one already.
    Bytes flat = {std::byte{5}, std::byte{8}, std::byte{0x21}, std::byte{0x22}, std::byte{0x22}, std::byte{1},
                  std::byte{0}, std::byte{0}, std::byte{0},    std::byte{0x80}, std::byte{0x3F}, std::byte{0}};
    EXPECT_THAT(refusal(flat, 4), HasSubstr("length of coded values 5: allowed is less than the 1 bytes"));
    // The paper's words hold their codes themselves.
    EXPECT_THAT(refusal({std::byte{5}, std::byte{0x63}, std::byte{0x23}, std::byte{1}, std::byte{0}, std::byte{0x80},
                         std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}}),
                HasSubstr("coded values of words that hold them"));
    // Signs have nothing to code.
    EXPECT_FALSE(codec::validate_chunk(Bytes{std::byte{5}, std::byte{4}, std::byte{0x20}}, 8).is_ok());
}

TEST(EntropyCoder, Any_byte_changed_is_read_as_the_page_says_or_refused_as_it_says) {
    std::uint64_t state = 17;
    std::size_t accepted = 0;
    const auto natural = *codec::parse_pipeline("topk(0.5) | natural | rice | entropy");
    std::vector<std::uint32_t> indices(1500);
    std::iota(indices.begin(), indices.end(), 0U);
    for (const Bytes& good :
         {small_payload(),
          code(natural, 2000, false, indices, make_values(Shape::kGaussian, indices.size(), 4)).payload}) {
        const std::uint32_t elements = good.size() < 100 ? 100 : 2000;
        ASSERT_NE(static_cast<unsigned>(good[2]) & 0x20U, 0U);
        for (int round = 0; round < 3000; ++round) {
            Bytes bad = good;
            const std::size_t reach = round % 2 == 0 ? std::min<std::size_t>(bad.size(), 160) : bad.size();
            bad[random_word(state) % reach] ^= static_cast<std::byte>(1U << (random_word(state) % 8));
            if (round % 7 == 0) bad.resize(random_word(state) % bad.size());
            const auto expected = educational_decode(octets(bad), elements);
            const Status status = codec::validate_chunk(bad, elements);
            ASSERT_EQ(status.is_ok(), expected.has_value()) << "round " << round << ": " << status.to_string();
            accepted += status.is_ok() ? 1 : 0;
        }
    }
    EXPECT_GT(accepted, 20U);
}

TEST(EntropyCoder, Pipelines_that_have_nothing_to_code_are_refused) {
    for (const char* quantizer : {"f32", "f16", "bf16", "sign", "sign(scale=two_mean)", "sign(scale=none)"}) {
        const auto refused = codec::parse_pipeline("all | " + std::string(quantizer) + " | entropy");
        ASSERT_FALSE(refused.is_ok()) << quantizer;
        EXPECT_THAT(refused.status().to_string(), HasSubstr("quantizer before entropy"));
        EXPECT_THAT(refused.status().to_string(), HasSubstr("codes of 2 to 8 bits"));
    }
    EXPECT_FALSE(codec::parse_pipeline("topk(0.1) | entropy").is_ok());
    EXPECT_FALSE(codec::parse_pipeline("all | natural | entropy | auto").is_ok());
    EXPECT_FALSE(codec::parse_pipeline("all | natural | entropy(3)").is_ok());
    EXPECT_FALSE(codec::parse_pipeline("all | natural | entropy | entropy").is_ok());
    EXPECT_FALSE(codec::parse_pipeline("entropy").is_ok());
    const auto pipeline = codec::parse_pipeline("topk(0.01) | pow2 | entropy");
    ASSERT_TRUE(pipeline.is_ok());
    EXPECT_EQ(codec::canonical_text(*pipeline, codec::Knobs::kKeep),
              "topk(ratio=0.01, scope=tensor, gate=0) | pow2(bits=4, scope=tile) | auto | entropy");
    EXPECT_EQ(*codec::parse_pipeline(codec::canonical_text(*pipeline, codec::Knobs::kKeep)), *pipeline);
}

}  // namespace
}  // namespace gradsieve::test

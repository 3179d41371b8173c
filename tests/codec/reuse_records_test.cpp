// Reuse records: their text, their bytes, and what receivers refuse.
#include "codec/reuse.hpp"
#include "encoder_harness.hpp"
#include "payload_cases.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace gradsieve::codec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Values = std::vector<float>;

std::string refusal(const std::string& text) { return parse_pipeline(text).status().text(); }

TEST(ReuseText, Skip_and_most_are_written_out) {
    const auto pipeline = parse_pipeline("similarity(0.5) | all | sign");
    ASSERT_TRUE(pipeline.is_ok()) << pipeline.status().to_string();
    EXPECT_TRUE(pipeline->measures_similarity);
    EXPECT_EQ(pipeline->reuse, (Reuse{0.5, 7}));
    EXPECT_EQ(canonical_text(*pipeline, Knobs::kKeep), "similarity(skip=0.5, most=7) | all | sign(scale=mean) | auto");
    EXPECT_EQ(*parse_pipeline(canonical_text(*pipeline, Knobs::kKeep)), *pipeline);
    EXPECT_EQ(parse_pipeline("similarity(skip=0.9, most=100) | rotate | all | sign")->reuse, (Reuse{0.9, 100}));
    EXPECT_EQ(*parse_pipeline("similarity(skip=none) | topk(0.1)"), *parse_pipeline("similarity | topk(0.1)"));
}
TEST(ReuseText, Nodes_agree_that_steps_may_be_skipped_and_not_when) {
    const auto blank = [](const char* text) { return canonical_text(*parse_pipeline(text), Knobs::kBlank); };
    EXPECT_EQ(blank("similarity(0.5, 3) | all | sign"), blank("similarity(0.9) | all | sign"));
    EXPECT_NE(blank("similarity(0.5) | all | sign"), blank("similarity | all | sign"));
    EXPECT_EQ(blank("similarity | all | sign"), blank("all | sign"));
}
TEST(ReuseText, What_would_not_mean_what_it_says_is_refused) {
    EXPECT_THAT(refusal("similarity(skip=0) | all | sign"), HasSubstr("none or [0.01, 0.999]"));
    EXPECT_THAT(refusal("similarity(skip=1) | all | sign"), HasSubstr("none or [0.01, 0.999]"));
    EXPECT_THAT(refusal("similarity(most=3) | all | sign"), HasSubstr("none without skip"));
    EXPECT_THAT(refusal("similarity(0.5, 0) | all | sign"), HasSubstr("a whole number in [1, 100]"));
    EXPECT_THAT(refusal("similarity(0.5, 2.5) | all | sign"), HasSubstr("a whole number in [1, 100]"));
    EXPECT_THAT(refusal("similarity(skp=0.5) | all | sign"), HasSubstr("did you mean skip?"));
    for (const char* selector : {"topk(0.1)", "variance", "threshold(1)", "randk(0.1)", "bernoulli(0.1)",
                                 "topk(0.1, scope=model)", "variance(mode=faithful)"})
        EXPECT_THAT(refusal("similarity(0.5) | " + std::string(selector)), HasSubstr("allowed is all")) << selector;
    for (const char* quantizer : {"f32", "natural(feedback=none)", "dither(feedback=none)", "sign(scale=none)"})
        EXPECT_THAT(refusal("similarity(0.5) | all | " + std::string(quantizer)), HasSubstr("keeps its errors"))
            << quantizer;
    EXPECT_THAT(refusal("similarity(0.5) | rotate | all | sign(drive)"), HasSubstr("keeps its errors"));
    EXPECT_THAT(refusal("similarity(0.5) | momentum | all | sign"), HasSubstr("'momentum'"));
    EXPECT_THAT(refusal("similarity(0.5) | accumulate(2) | all | sign"), HasSubstr("'accumulate'"));
    EXPECT_THAT(refusal("similarity(0.5) | compensate(lowpass=0.5) | all | sign"), HasSubstr("without lowpass"));
    EXPECT_THAT(refusal("similarity(0.5) | lowrank(2)"), HasSubstr("'lowrank'"));
}

/// Two nodes' payloads of four elements.
class ReuseRecords : public ::testing::Test {
protected:
    using Chunks = std::vector<std::pair<std::uint32_t, Bytes>>;

    static Bytes record(Step step) {
        Bytes bytes(kReuseBytes);
        build_reuse(step, bytes.data());
        return bytes;
    }
    Bytes payload(const Values& values) const { return test::code(pipeline, values.size(), true, {}, values).payload; }
    Status take(Step step, const Chunks& first, const Chunks& second) {
        chunks = {first, second};
        std::vector<std::vector<ChunkView>> views(2);
        std::vector<Contribution> contributions;
        for (std::size_t node = 0; node < 2; ++node) {
            for (const auto& [number, bytes] : chunks[node]) views[node].push_back({number, bytes});
            contributions.push_back({0.5F, views[node]});
        }
        const auto resolved = held.take(step, contributions);
        if (!resolved.is_ok()) return resolved.error();
        const auto decoded = result.decode_average(step, *resolved);
        digest = decoded.is_ok() ? decoded->digest : 0;
        return decoded.status();
    }

    Pipeline pipeline = *parse_pipeline("similarity(0.5) | all | bf16");
    HeldPayloads held{pipeline, 4, 2};
    Values average = Values(4, 0.0F);
    ResultTensor result{7, average.data(), 4};
    std::vector<Chunks> chunks;
    std::uint64_t digest = 0;
    const Bytes a = payload({1, 2, 3, 4}), b = payload({-1, 0, 8, 2}), c = payload({5, 5, 5, 5});
};

TEST_F(ReuseRecords, Bytes_are_version_form_and_step) {
    EXPECT_EQ(test::octets(record(0x0123456789abcdefU)),
              (std::vector<std::uint8_t>{5, 31, 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01}));
    EXPECT_EQ(*parse_reuse(record(77)), 77U);
    EXPECT_TRUE(is_reuse(record(77)));
    EXPECT_FALSE(is_reuse(a));
}
TEST_F(ReuseRecords, Average_and_digest_are_those_of_the_payload_itself) {
    ASSERT_TRUE(take(1, {{0, a}}, {{0, b}}).is_ok());
    held.commit(1);
    ASSERT_TRUE(take(2, {{0, record(1)}}, {{0, c}}).is_ok());
    EXPECT_EQ(average, (Values{3, 3.5, 4, 4.5}));
    Values other(4, 0.0F);
    ResultTensor in_full(7, other.data(), 4);
    const ChunkView of_first[] = {{0, a}};
    const ChunkView of_second[] = {{0, c}};
    const Contribution both[] = {{0.5F, of_first}, {0.5F, of_second}};
    EXPECT_EQ(in_full.decode_average(2, both)->digest, digest);
    EXPECT_EQ(other, average);
    held.commit(2);
    EXPECT_EQ(held.of(0).step, 1U) << "a record is no payload to hold";
    EXPECT_EQ(held.of(1).step, 2U);
    ASSERT_TRUE(take(3, {{0, record(1)}}, {{0, record(2)}}).is_ok());
}
TEST_F(ReuseRecords, What_is_not_held_is_refused_in_words) {
    EXPECT_THAT(take(1, {{0, a}}, {{0, record(1)}}).to_string(),
                AllOf(HasSubstr("corrupt: contribution 1: chunk 0: payload that stands for the one of step 1"),
                      HasSubstr("the node has sent none since the start")));
    ASSERT_TRUE(take(1, {{0, a}}, {}).is_ok());
    held.commit(1);
    EXPECT_THAT(take(2, {{0, record(2)}}, {{0, b}}).to_string(),
                AllOf(HasSubstr("of step 2"), HasSubstr("step 1, of which its last one is held")));
    EXPECT_EQ(take(2, {{0, record(0)}}, {{0, b}}).code(), StatusCode::kCorrupt);
    EXPECT_EQ(take(2, {{0, record(1)}}, {{0, record(1)}}).code(), StatusCode::kCorrupt) << "a node that sent nothing";
    ASSERT_TRUE(take(2, {{0, record(1)}}, {{0, b}}).is_ok());
    held.commit(2);
    ASSERT_TRUE(take(3, {{0, c}}, {{0, b}}).is_ok());
    held.commit(3);
    EXPECT_EQ(take(4, {{0, record(1)}}, {{0, b}}).code(), StatusCode::kCorrupt) << "held no longer";
}
TEST_F(ReuseRecords, Damaged_records_are_refused) {
    ASSERT_TRUE(take(1, {{0, a}}, {{0, b}}).is_ok());
    held.commit(1);
    for (std::size_t length = 2; length < kReuseBytes; ++length) {
        auto bytes = record(1);
        bytes.resize(length);
        EXPECT_THAT(take(2, {{0, bytes}}, {{0, b}}).to_string(),
                    AllOf(HasSubstr("corrupt"), HasSubstr("of bytes " + std::to_string(length)), HasSubstr("10")));
    }
    auto longer = record(1);
    longer.push_back({});
    EXPECT_EQ(take(2, {{0, longer}}, {{0, b}}).code(), StatusCode::kCorrupt);
    auto other_version = record(1);
    other_version[0] = std::byte{4};
    EXPECT_THAT(take(2, {{0, other_version}}, {{0, b}}).to_string(), HasSubstr("version 4"));
    EXPECT_EQ(take(2, {{1, record(1)}}, {{0, b}}).code(), StatusCode::kCorrupt) << "another chunk";
    EXPECT_THAT(take(2, {{0, record(1)}, {1, a}}, {{0, b}}).to_string(), HasSubstr("all chunks of a tensor"));
    EXPECT_EQ(take(2, {{0, record(1)}, {1, record(1)}}, {{0, b}}).code(), StatusCode::kCorrupt);
    ASSERT_TRUE(take(2, {{0, record(1)}}, {{0, b}}).is_ok()) << "refusals change nothing";
}
TEST_F(ReuseRecords, Without_a_codec_that_skips_they_are_refused_by_name) {
    const ChunkView chunk[] = {{0, chunks.emplace_back(Chunks{{0, record(1)}})[0].second}};
    const Contribution contribution[] = {{1.0F, chunk}};
    EXPECT_THAT(result.decode_average(2, contribution).status().to_string(),
                AllOf(HasSubstr("corrupt: contribution 0: chunk 0"), HasSubstr("similarity(skip=..)")));
    EXPECT_EQ(validate_chunk(record(1), 4).code(), StatusCode::kCorrupt);
}
TEST_F(ReuseRecords, Only_steps_that_count_are_held) {
    ASSERT_TRUE(take(1, {{0, a}}, {{0, b}}).is_ok());
    held.commit(1);
    ASSERT_TRUE(take(2, {{0, b}}, {{0, c}}).is_ok());  // and fails
    ASSERT_TRUE(take(3, {{0, record(1)}}, {{0, a}}).is_ok());
    held.commit(3);
    EXPECT_EQ(held.of(0).step, 1U);
    EXPECT_EQ(held.of(1).step, 3U);
    EXPECT_TRUE(std::ranges::equal(held.of(0).chunks[0].bytes, a));
    EXPECT_TRUE(std::ranges::equal(held.of(1).chunks[0].bytes, a));
}
TEST_F(ReuseRecords, What_is_longer_than_the_codec_s_payloads_is_decoded_and_not_held) {
    const Values values(4'096, 1.5F);
    HeldPayloads room(*parse_pipeline("similarity(0.5) | all | sign"), 4'096, 1);
    const auto numbers = build_exact_chunk(values);
    const ChunkView chunk[] = {{0, numbers}};
    const Contribution contribution[] = {{1.0F, chunk}};
    ASSERT_TRUE(room.take(1, contribution).is_ok());
    room.commit(1);
    EXPECT_EQ(room.of(0).step, 0U);
}
TEST(ReuseMemory, Bound_is_above_every_payload_of_every_codec_that_skips) {
    for (const auto& named : every_pipeline()) {
        auto pipeline = named.pipeline;
        pipeline.reuse.share = 0.5;
        if (!parse_pipeline(canonical_text(pipeline, Knobs::kKeep)).is_ok()) continue;
        for (const DataKind kind : {DataKind::kGaussian, DataKind::kHeavyTailed, DataKind::kWideRange})
            for (const ElementCount elements : {1U, 63U, 4'097U, 20'000U}) {
                std::mt19937_64 random(elements);
                EncodeLoop loop(named.pipeline, elements, 1, 0);
                for (const auto& chunk : loop.step(make_gradient(kind, elements, random)).chunks) {
                    EXPECT_LE(chunk.bytes.size(), most_payload_bytes(pipeline, elements)) << named.name;
                    EXPECT_LE(most_payload_bytes(pipeline, elements), 8 * chunk.bytes.size() + 4 * elements + 64);
                }
            }
    }
    for (const char* coder : {"rice", "bitmap", "raw32", "elias_fano"}) {
        const auto pipeline = *parse_pipeline("similarity(0.5) | all | pow2(2) | " + std::string(coder));
        for (const unsigned every : {1U, 2U, 3U, 7U, 64U}) {
            Values gradient(20'000, 0.0F);
            for (std::size_t at = 0; at < gradient.size(); at += every) gradient[at] = 1;
            EncodeLoop loop(*parse_pipeline("all | pow2(2) | " + std::string(coder)), 20'000, 1, 0);
            EXPECT_LE(loop.step(gradient).chunks.at(0).bytes.size(), most_payload_bytes(pipeline, 20'000)) << coder;
        }
    }
    EXPECT_EQ(reuse_bytes(*parse_pipeline("similarity(0.5) | all | sign"), 0, 5), 0U);
}

}  // namespace
}  // namespace gradsieve::codec

// The GPU decoder's plan: what it refuses, in the CPU decoder's words, and that the tables and the upload fit together.
#include "codec/cuda/decode_plan.hpp"
#include "codec/cuda/gather_threads.hpp"
#include "tests/codec/payload_cases.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

namespace gradsieve::codec::cuda {
namespace {

Bytes coded(const std::string& text, std::size_t elements) {
    for (const auto& one : test::all_pipeline_cases()) {
        if (one.text != text) continue;
        const auto data = test::make_case_data(one, test::Shape::kGaussian, elements, 3);
        return test::code(one.pipeline, elements, one.is_dense, data.indices, data.values).payload;
    }
    throw std::logic_error("no case " + text);
}

/// A tensor of two chunks, of one node or two.
struct Tensor {
    ElementCount elements = kChunkElements + 5000;
    std::vector<ChunkView> first, second;
    std::vector<Contribution> contributions;
    std::byte memory[16] = {};
    GpuResult result{memory, ElementType::kF32, true};

    GpuDecodeRequest request() {
        contributions = {{0.5F, first}, {0.5F, second}};
        return {7, 1, elements, contributions, {&result, 1}, nullptr};
    }
    Status cpu_status() const {
        std::vector<float> values(elements);
        return ResultTensor(7, values.data(), elements).decode_average(1, contributions).status();
    }
};

TEST(DecodePlan, Refused_payloads_are_named_as_the_decoder_names_them) {
    const Bytes whole = coded("topk(0.01) | pow2(bits=4) | rice", kChunkElements);
    const Bytes rest = coded("topk(0.01) | pow2(bits=4) | rice", 5000);
    Bytes other_version = rest;
    other_version[0] = std::byte{9};
    Bytes damaged = whole;
    damaged.resize(damaged.size() / 2);
    Bytes longer = rest;
    longer.resize(longer.size() + 100000);
    const std::vector<std::pair<std::vector<ChunkView>, std::vector<ChunkView>>> cases = {
        {{{0, whole}, {1, other_version}}, {{1, rest}}},
        {{{1, rest}, {0, whole}}, {}},
        {{{0, whole}}, {{0, whole}, {2, rest}}},
        {{{0, damaged}, {1, other_version}}, {{0, whole}}},
        {{{1, longer}}, {}},
        {{{0, ByteView{}}}, {}},
        {{{1, other_version}}, {{0, damaged}}}};
    for (std::size_t place = 0; place < cases.size(); ++place) {
        Tensor tensor;
        tensor.first = cases[place].first;
        tensor.second = cases[place].second;
        const GpuDecodeRequest request = tensor.request();
        DecodePlan plan;
        ASSERT_TRUE(plan.make({&request, 1}).is_ok());
        EXPECT_FALSE(plan.plan_of(0).refusal.is_ok()) << place;
        EXPECT_EQ(plan.plan_of(0).refusal.to_string(), tensor.cpu_status().to_string()) << place;
        EXPECT_TRUE(plan.pieces().empty() && plan.rounds().empty()) << "a refused tensor has no work";
    }
}

TEST(DecodePlan, Refusal_looks_at_suspects_alone_and_admits_that_it_finds_nothing) {
    const Bytes good = coded("all | f32 | auto", 5000);
    Bytes bad = good;
    bad[2 + 4 * 77 + 3] = std::byte{0x7F};
    bad[2 + 4 * 77 + 2] = std::byte{0xFF};
    const ChunkView good_chunk{0, good};
    const ChunkView bad_chunk{0, bad};
    const std::vector<PlannedPayload> payloads = {{0, &good_chunk}, {1, &bad_chunk}};
    EXPECT_EQ(explain_refusal(5000, payloads, std::vector<std::uint32_t>{0, 1}).code(), StatusCode::kCorrupt);
    EXPECT_EQ(explain_refusal(5000, payloads, {}).code(), StatusCode::kCorrupt);
    const Status nothing = explain_refusal(5000, payloads, std::vector<std::uint32_t>{1, 0});
    EXPECT_EQ(nothing.code(), StatusCode::kInternal);
    EXPECT_NE(nothing.text().find("both must agree"), std::string::npos) << nothing.to_string();
}

TEST(DecodePlan, Invalid_requests_are_refused_with_the_value_seen) {
    Tensor tensor;
    const auto text_of = [](const GpuDecodeRequest& request) {
        DecodePlan plan;
        const Status status = plan.make({&request, 1});
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        return status.text();
    };
    GpuDecodeRequest request = tensor.request();
    tensor.contributions[1].factor = -0.5F;
    EXPECT_NE(text_of(request).find("factor -0.5"), std::string::npos);
    request = tensor.request();
    tensor.result.data = tensor.memory + 2;
    EXPECT_NE(text_of(request).find("no multiple of 4"), std::string::npos);
    tensor.result.data = nullptr;
    EXPECT_NE(text_of(request).find("without memory"), std::string::npos);
}

TEST(DecodePlan, Rotations_have_rounds_of_their_own_and_none_beside_other_payloads) {
    const Bytes rotated = coded("rotate | all | sign", 5000);
    const Bytes other = coded("all | f32 | auto", 5000);
    const ChunkView chunks[] = {{0, rotated}, {0, other}};
    std::byte memory[16] = {};
    const GpuResult result{memory, ElementType::kF32, true};
    const Contribution alike[] = {{0.5F, {&chunks[0], 1}}, {0.5F, {&chunks[0], 1}}};
    const Contribution mixed[] = {{0.5F, {&chunks[0], 1}}, {0.5F, {&chunks[1], 1}}};
    const Contribution plain[] = {{1.0F, {&chunks[1], 1}}};
    const GpuDecodeRequest requests[] = {{7, 1, 5000, alike, {&result, 1}, nullptr},
                                         {8, 1, 5000, mixed, {&result, 1}, nullptr},
                                         {9, 1, 5000, plain, {&result, 1}, nullptr}};
    DecodePlan plan;
    ASSERT_TRUE(plan.make(requests).is_ok());
    EXPECT_TRUE(plan.plan_of(0).refusal.is_ok());
    EXPECT_NE(plan.plan_of(1).refusal.to_string().find("rotation"), std::string::npos);
    EXPECT_TRUE(plan.plan_of(2).refusal.is_ok());
    ASSERT_EQ(plan.rounds().size(), 2U);
    EXPECT_FALSE(plan.rounds()[0].is_rotated);
    EXPECT_TRUE(plan.rounds()[1].is_rotated);
}
TEST(DecodePlan, Upload_and_rounds_hold_every_tensor_once) {
    std::vector<Bytes> payloads;
    for (const auto& one : test::all_pipeline_cases()) payloads.push_back(coded(one.text, 5000));
    std::vector<ChunkView> chunks(payloads.size());
    std::vector<Contribution> contributions(payloads.size());
    std::byte memory[16] = {};
    const GpuResult result{memory, ElementType::kBf16, false};
    std::vector<GpuDecodeRequest> requests(payloads.size());
    for (std::size_t place = 0; place < payloads.size(); ++place) {
        chunks[place] = {0, payloads[place]};
        contributions[place] = {1.0F, {&chunks[place], 1}};
        requests[place] = {place, 1, 5000, {&contributions[place], 1}, {&result, 1}, nullptr};
    }
    DecodePlan plan;
    ASSERT_TRUE(plan.make(requests).is_ok());
    ByteCount end = plan.layout().tables_bytes;
    for (const UploadPiece& piece : plan.pieces()) {
        EXPECT_GE(piece.offset, end);
        EXPECT_EQ(piece.offset % 16, 0U);
        end = piece.offset + piece.bytes;
    }
    EXPECT_LT(end + 7, plan.layout().total_bytes) << "kernels read a few bytes behind the last piece";
    std::uint32_t units = 0;
    std::uint32_t covered = 0;
    for (const DecodeRound& round : plan.rounds()) {
        EXPECT_EQ(round.first_unit, units);
        EXPECT_EQ(round.first_chunk, covered);
        units += round.units;
        covered += round.chunks;
    }
    EXPECT_EQ(covered, payloads.size());
    EXPECT_EQ(units, payloads.size() * 5);
    EXPECT_EQ(plan.rounds().size(), 5U) << "of lists, of dense payloads, of each with levels of a base, of rotations";
    Bytes upload(plan.layout().total_bytes, std::byte{0xEE});
    plan.write_tables(upload.data());
    for (ByteCount byte = 0; byte < plan.layout().answers_bytes; ++byte) ASSERT_EQ(upload[byte], std::byte{0});
    EXPECT_EQ(upload[plan.layout().tables_bytes], std::byte{0xEE}) << "wrote behind the tables";
}

TEST(DecodePlan, What_lies_in_a_mirror_is_fetched_behind_what_is_sent) {
    const auto mirrors = std::make_shared<MirrorPool>();

    const auto block = mirrors->take(200'000);
    if (!block.is_ok()) GTEST_SKIP() << block.status().to_string();
    const Bytes dense = coded("all | f32 | auto", 30'000);
    ASSERT_LT(dense.size() + 16, (*block)->size());
    std::copy(dense.begin(), dense.end(), (*block)->data() + 16);
    const ChunkView near_chunk{0, {(*block)->data() + 16, dense.size()}};
    const Bytes other = coded("topk(0.01) | pow2(bits=4) | auto", 30'000);
    const ChunkView far_chunk{0, other};
    const std::vector<Contribution> contributions = {{0.5F, {&near_chunk, 1}}, {0.5F, {&far_chunk, 1}}};
    std::byte memory[16] = {};
    const GpuResult result{memory, ElementType::kF32, false};
    const GpuDecodeRequest request{1, 1, 30'000, contributions, {&result, 1}, nullptr};
    DecodePlan plan;
    GpuDecoderLimits limits;
    limits.mirrors = mirrors;
    ASSERT_TRUE(plan.make({&request, 1}, {}, limits).is_ok());
    ASSERT_EQ(plan.pieces().size(), 1U);
    ASSERT_EQ(plan.fetched_pieces().size(), 1U);
    EXPECT_GE(plan.fetched_pieces()[0].offset, plan.layout().sent_bytes);
    std::vector<FetchPiece> rows(plan.fetch_rows());
    plan.write_fetches(rows.data());
    ASSERT_EQ(rows.size(), 2U) << "120,000 bytes in rows of 65,536";
    EXPECT_EQ(rows[0].bytes, kFetchBytes);
    EXPECT_EQ(rows[0].target_bytes, kFetchBytes);
    EXPECT_EQ(rows[1].source, rows[0].source + kFetchBytes);
    EXPECT_EQ(rows[1].offset, rows[0].offset + kFetchBytes);
    EXPECT_EQ(rows[0].bytes + rows[1].bytes, 120'000U);
    EXPECT_GE(rows[1].target_bytes, rows[1].bytes + 7) << "kernels read a few bytes behind the last piece";
    EXPECT_EQ(rows[1].offset + rows[1].target_bytes, plan.layout().total_bytes);
    ASSERT_TRUE(plan.make({&request, 1}).is_ok());
    EXPECT_EQ(plan.pieces().size(), 2U) << "without mirrors the host gathers all";
}

TEST(GatherThreads, All_work_is_done_once_in_batch_after_batch) {
    GatherThreads threads;
    for (unsigned batch = 0; batch < 50; ++batch) {
        std::vector<std::atomic<unsigned>> times(200);
        std::atomic<std::size_t> next{0};
        const auto work = [&] {
            const std::size_t place = next.fetch_add(1);
            if (place < times.size()) times[place].fetch_add(1);
            return place + 1 < times.size();
        };
        threads.start(work, batch % 9);
        while (work()) {}
        threads.finish();
        for (const auto& count : times) ASSERT_EQ(count.load(), 1U);
    }
}

}  // namespace
}  // namespace gradsieve::codec::cuda

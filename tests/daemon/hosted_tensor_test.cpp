#include "daemon/hosted_tensor.hpp"

#include "codec/decoder.hpp"

#include <gtest/gtest.h>
#include <numeric>

namespace gradsieve::daemon {
namespace {

HostedTensor stamped(Step first, bool is_first_valid, Step second, bool is_second_valid) {
    HostedTensor tensor;
    tensor.generations[0].stamp = first;
    tensor.generations[0].is_valid = is_first_valid;
    tensor.generations[1].stamp = second;
    tensor.generations[1].is_valid = is_second_valid;
    return tensor;
}

TEST(HostedTensor, Newest_generation_not_above_the_committed_step_is_live) {
    EXPECT_EQ(stamped(4, true, 5, true).live_generation(5), 1U);
    EXPECT_EQ(stamped(6, true, 5, true).live_generation(5), 1U) << "step 6 is not committed";
    EXPECT_EQ(stamped(6, true, 5, true).live_generation(6), 0U);
    EXPECT_EQ(stamped(0, true, 0, true).live_generation(0), 0U) << "a fresh tensor";
}
TEST(HostedTensor, Generation_of_an_aborted_step_is_never_live) {
    EXPECT_EQ(stamped(5, true, 6, false).live_generation(7), 0U);
    EXPECT_EQ(stamped(6, false, 5, true).live_generation(7), 1U);
}

TEST(CodecTask, Encode_then_decode_gives_the_weighted_average) {
    constexpr ElementCount kElements = 100;
    std::vector<float> first(kElements), second(kElements), result(kElements, 0.0F);
    std::iota(first.begin(), first.end(), 0.0F);
    std::iota(second.begin(), second.end(), 100.0F);
    HostedTensor tensor;
    tensor.elements = kElements;
    tensor.pipeline = *codec::parse_pipeline("all | f32");
    tensor.result.emplace(1, result.data(), kElements);
    codec::EncodeWorkspace workspace;

    CodecTask encode;
    encode.tensor = &tensor;
    encode.samples = {first.data(), second.data()};
    encode.weights = {0.5F, 0.5F};
    encode.request.pipeline = &tensor.pipeline;
    encode.request.elements = kElements;
    encode.request.samples = encode.samples;
    encode.request.weights = encode.weights;
    encode.run(workspace);
    ASSERT_TRUE(encode.encoded->is_ok()) << encode.encoded->error().to_string();

    CodecTask decode;
    decode.kind = CodecTask::Kind::kDecode;
    decode.tensor = &tensor;
    decode.step = 1;
    for (auto& chunk : (*encode.encoded)->chunks)
        decode.payloads.push_back({0, {{chunk.chunk_index, share(std::move(chunk.bytes))}}});
    decode.factors = {1.0F};
    decode.run(workspace);
    ASSERT_TRUE(decode.decoded->is_ok()) << decode.decoded->error().to_string();
    for (ElementCount element = 0; element < kElements; ++element)
        EXPECT_EQ(result[element], 50.0F + static_cast<float>(element));
}

TEST(CodecTask, Record_of_a_skipped_step_is_refused_where_no_steps_are_skipped_and_where_nothing_is_held) {
    std::vector<float> result(4, 0.0F);
    Bytes record(codec::kReuseBytes);
    codec::build_reuse(6, record.data());
    for (const bool skips : {false, true}) {
        HostedTensor tensor;
        tensor.elements = 4;
        tensor.pipeline = *codec::parse_pipeline(skips ? "similarity(skip=0.5) | all | sign" : "all | sign");
        tensor.result.emplace(1, result.data(), 4);
        const exchange::Member members[] = {{.peer = 3, .ranks = {0}}};
        tensor.start_reuse(members, 3);
        EXPECT_EQ(tensor.held.has_value(), skips);
        CodecTask decode;
        decode.kind = CodecTask::Kind::kDecode;
        decode.tensor = &tensor;
        decode.step = 7;
        decode.payloads.push_back({3, {{0, SharedView::take(Bytes(record))}}});
        decode.factors = {1.0F};
        codec::EncodeWorkspace workspace;
        decode.run(workspace);
        ASSERT_FALSE(decode.decoded->is_ok());
        EXPECT_EQ(decode.decoded->status().code(), StatusCode::kCorrupt);
        EXPECT_NE(decode.decoded->status().text().find(skips ? "has sent none since the start" : "similarity(skip=..)"),
                  std::string::npos)
            << decode.decoded->status().text();
    }
}

}  // namespace
}  // namespace gradsieve::daemon

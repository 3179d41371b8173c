#include "codec/decoder.hpp"

#include "codec/digest.hpp"
#include "tests/codec/educational_decoder.hpp"
#include "tests/codec/payload_cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>

namespace gradsieve::test {
namespace {

using codec::ChunkView;
using codec::Contribution;
using codec::DecodeResult;
using codec::ResultTensor;

struct NodePayloads {
    float factor = 0;
    std::vector<std::uint32_t> chunk_indices;
    std::vector<Bytes> payloads;
};

/// Page-aligned, as mapped memory is, so that large tensors take the streaming path.
struct FreeMemory {
    void operator()(float* memory) const { std::free(memory); }
};
std::unique_ptr<float, FreeMemory> make_memory(std::size_t elements) {
    auto* memory = static_cast<float*>(std::aligned_alloc(4096, (elements * sizeof(float) + 4095) / 4096 * 4096));
    std::fill_n(memory, elements, 0.0F);
    return std::unique_ptr<float, FreeMemory>(memory);
}

Result<DecodeResult> decode(ResultTensor& tensor, Step step, const std::vector<NodePayloads>& nodes) {
    std::vector<std::vector<ChunkView>> chunks(nodes.size());
    std::vector<Contribution> contributions;
    for (std::size_t node = 0; node < nodes.size(); ++node) {
        for (std::size_t i = 0; i < nodes[node].payloads.size(); ++i)
            chunks[node].push_back({nodes[node].chunk_indices[i], nodes[node].payloads[i]});
        contributions.push_back({nodes[node].factor, chunks[node]});
    }
    return tensor.decode_average(step, contributions);
}

/// The average and its digest by the page: element by element, from the educational decoder.
struct Expected {
    std::vector<float> values;
    DecodeResult result;
};
Expected average_by_the_page(TensorId id, Step step, std::size_t elements, const std::vector<NodePayloads>& nodes) {
    Expected expected;
    expected.values.assign(elements, 0.0F);
    std::vector<bool> touched(elements, false);
    for (const NodePayloads& node : nodes)
        for (std::size_t i = 0; i < node.payloads.size(); ++i) {
            const std::size_t first = node.chunk_indices[i] * kChunkElements;
            const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(kChunkElements, elements - first));
            const auto decoded = educational_decode(octets(node.payloads[i]), n);
            if (!decoded) throw std::logic_error("test payload is not valid");
            for (const auto& [index, value] : *decoded) {
                const volatile float product = node.factor * value;
                const volatile float sum = expected.values[first + index] + product;
                expected.values[first + index] = sum;
                touched[first + index] = true;
            }
        }
    for (std::size_t i = 0; i < elements; ++i) {
        if (!touched[i]) continue;
        ++expected.result.touched_elements;
        expected.result.digest +=
            codec::element_digest(codec::digest_key(id, step, static_cast<std::uint32_t>(i / kChunkElements)),
                                  static_cast<std::uint32_t>(i % kChunkElements), float_bits(expected.values[i]));
    }
    return expected;
}

void expect_equal(const float* memory, const Result<DecodeResult>& result, const Expected& expected) {
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    for (std::size_t i = 0; i < expected.values.size(); ++i)
        ASSERT_EQ(float_bits(memory[i]), float_bits(expected.values[i])) << "element " << i;
    EXPECT_EQ(result->digest, expected.result.digest);
    EXPECT_EQ(result->touched_elements, expected.result.touched_elements);
}

Bytes coded_list(const std::string& text, std::size_t elements, std::uint32_t parts_per_million, std::uint64_t seed) {
    const auto indices = make_indices(elements, parts_per_million, seed);
    if (indices.empty()) return {};
    return code(*codec::parse_pipeline(text), elements, false, indices,
                make_values(Shape::kHeavyTailed, indices.size(), seed))
        .payload;
}

/// A random node: some chunks left out, the others of any form and density.
NodePayloads random_node(std::size_t elements, float factor, std::uint64_t& state) {
    static const std::vector<std::string> kTexts = {
        "f32", "bf16", "pow2", "sign", "sign(scale=0.1)", "pow2 | raw32", "f32 | bitmap", "bf16 | elias_fano"};
    NodePayloads node;
    node.factor = factor;
    for (std::size_t first = 0, chunk = 0; first < elements; first += kChunkElements, ++chunk) {
        const std::size_t n = std::min<std::size_t>(kChunkElements, elements - first);
        const auto draw = random_word(state) % 8;
        const auto& text = kTexts[random_word(state) % kTexts.size()];
        Bytes payload;
        if (draw == 0)
            payload = code(*codec::parse_pipeline("all | " + text.substr(0, text.find(' '))), n, true, {},
                           make_values(Shape::kGaussian, n, random_word(state)))
                          .payload;
        else if (draw != 1)
            payload = coded_list("topk(0.1) | " + text, n,
                                 draw < 5   ? 1000
                                 : draw < 7 ? 20000
                                            : 300000,
                                 random_word(state));
        if (payload.empty()) continue;
        node.chunk_indices.push_back(static_cast<std::uint32_t>(chunk));
        node.payloads.push_back(std::move(payload));
    }
    return node;
}

// Many steps on one object: what the last step left behind must never show.
void check_steps(std::size_t elements, unsigned steps, std::uint64_t seed) {
    SCOPED_TRACE("n = " + std::to_string(elements) + ", seed " + std::to_string(seed));
    std::uint64_t state = seed;
    const auto memory = make_memory(elements);
    ResultTensor tensor(17, memory.get(), elements);
    for (Step step = 1; step <= steps; ++step) {
        std::vector<NodePayloads> nodes;
        for (std::uint64_t node = random_word(state) % 4; node > 0; --node)
            nodes.push_back(random_node(elements, 1.0F / static_cast<float>(node + 2), state));
        expect_equal(memory.get(), decode(tensor, step, nodes), average_by_the_page(17, step, elements, nodes));
        if (::testing::Test::HasFatalFailure()) FAIL() << "step " << step;
    }
}

TEST(Decoder, Average_of_any_sequence_of_steps_is_the_page_s) {
    check_steps(1, 30, 1);
    check_steps(4095, 40, 2);
    check_steps(10000, 60, 3);
    check_steps(70000, 40, 4);
}
TEST(Decoder, Large_tensors_of_several_chunks_take_other_paths_to_the_same_bits) {
    check_steps(kChunkElements + 5000, 8, 5);
    check_steps(2 * kChunkElements, 4, 6);
}
TEST(Decoder, Element_that_two_nodes_touch_counts_once_with_its_final_bits) {
    const auto pipeline = *codec::parse_pipeline("topk(0.1) | f32");
    std::vector<NodePayloads> nodes(2);
    nodes[0] = {0.5F, {0}, {code(pipeline, 100, false, {3, 7}, {1, 2}).payload}};
    nodes[1] = {0.5F, {0}, {code(pipeline, 100, false, {7, 9}, {-2, 4}).payload}};
    const auto memory = make_memory(100);
    ResultTensor tensor(5, memory.get(), 100);
    const auto result = decode(tensor, 2, nodes);
    ASSERT_TRUE(result.is_ok());
    EXPECT_EQ(result->touched_elements, 3U) << "7 became zero and is still touched";
    const auto key = codec::digest_key(5, 2, 0);
    EXPECT_EQ(result->digest, codec::element_digest(key, 3, float_bits(0.5F)) + codec::element_digest(key, 7, 0) +
                                  codec::element_digest(key, 9, float_bits(2.0F)));
}
TEST(Decoder, Nodes_are_added_in_the_order_given) {
    const auto pipeline = *codec::parse_pipeline("topk(1) | f32");
    const auto node = [&](float value) {
        return NodePayloads{1.0F, {0}, {code(pipeline, 1, false, {0}, {value}).payload}};
    };
    const auto memory = make_memory(1);
    ResultTensor tensor(5, memory.get(), 1);
    ASSERT_TRUE(decode(tensor, 1, {node(1e8F), node(1.0F), node(-1e8F)}).is_ok());
    EXPECT_EQ(memory.get()[0], 0.0F);
    ASSERT_TRUE(decode(tensor, 2, {node(1e8F), node(-1e8F), node(1.0F)}).is_ok());
    EXPECT_EQ(memory.get()[0], 1.0F);
}
TEST(Decoder, Digest_is_the_same_however_the_nodes_coded_their_values) {
    const auto indices = make_indices(9000, 30000, 8);
    const auto values = make_values(Shape::kAlternating, indices.size(), 9);
    std::vector<std::uint64_t> digests;
    for (const char* text : {"topk(0.1) | f32 | raw32", "topk(0.1) | bf16 | bitmap", "topk(0.1) | pow2",
                             "topk(0.1) | sign", "topk(0.1) | sign | elias_fano"}) {
        const auto memory = make_memory(9000);
        ResultTensor tensor(5, memory.get(), 9000);
        const Bytes payload = code(*codec::parse_pipeline(text), 9000, false, indices, values).payload;
        digests.push_back(decode(tensor, 3, {{0.25F, {0}, {payload}}})->digest);
    }
    EXPECT_THAT(digests, ::testing::Each(digests[0]));
}
TEST(Decoder, No_contribution_leaves_zeros_and_digest_zero) {
    const auto memory = make_memory(300);
    ResultTensor tensor(5, memory.get(), 300);
    ASSERT_TRUE(decode(tensor, 1, {{1, {0}, {coded_list("topk(0.1) | f32", 300, 100000, 3)}}}).is_ok());
    const auto result = decode(tensor, 2, {});
    ASSERT_TRUE(result.is_ok());
    EXPECT_EQ(result->digest, 0U);
    EXPECT_EQ(result->touched_elements, 0U);
    for (std::size_t i = 0; i < 300; ++i) ASSERT_EQ(memory.get()[i], 0.0F);
}
TEST(Decoder, Bad_payload_is_refused_by_node_and_chunk_and_the_next_step_is_clean) {
    const std::size_t elements = kChunkElements + 500;
    const auto memory = make_memory(elements);
    ResultTensor tensor(5, memory.get(), elements);
    const Bytes good = coded_list("topk(0.1) | f32", 500, 100000, 3);
    Bytes bad = good;
    bad.pop_back();
    const Bytes large = coded_list("topk(0.1) | bf16", kChunkElements, 500000, 4);
    const auto refused = decode(tensor, 1, {{1, {0, 1}, {large, good}}, {1, {1}, {bad}}});
    ASSERT_FALSE(refused.is_ok());
    EXPECT_EQ(refused.error().code(), StatusCode::kCorrupt);
    EXPECT_THAT(refused.error().text(),
                ::testing::StartsWith("contribution 1: chunk 1: payload length of the value section"));
    const std::vector<NodePayloads> next = {{1, {1}, {good}}};
    expect_equal(memory.get(), decode(tensor, 2, next), average_by_the_page(5, 2, elements, next));
}
TEST(Decoder, Non_finite_dense_values_are_refused_and_the_next_step_is_clean) {
    for (const std::size_t elements : {std::size_t{500}, std::size_t{kChunkElements}}) {
        const auto memory = make_memory(elements);
        ResultTensor tensor(5, memory.get(), elements);
        auto values = make_values(Shape::kGaussian, elements, 1);
        values[elements - 1] = std::numeric_limits<float>::quiet_NaN();
        const auto refused = decode(tensor, 1, {{1, {0}, {codec::build_exact_chunk(values)}}});
        EXPECT_EQ(refused.status().code(), StatusCode::kCorrupt);
        const std::vector<NodePayloads> next = {{1, {0}, {coded_list("topk(0.1) | f32", elements, 20000, 3)}}};
        expect_equal(memory.get(), decode(tensor, 2, next), average_by_the_page(5, 2, elements, next));
    }
}
TEST(Decoder, Chunk_indices_are_checked) {
    const auto memory = make_memory(500);
    ResultTensor tensor(5, memory.get(), 500);
    const Bytes good = coded_list("topk(0.1) | f32", 500, 100000, 3);
    EXPECT_THAT(decode(tensor, 1, {{1, {1}, {good}}}).status().text(),
                ::testing::HasSubstr("contribution 0: payload chunk index 1: allowed is ascending and less than 1"));
    EXPECT_EQ(decode(tensor, 1, {{1, {0, 0}, {good, good}}}).status().code(), StatusCode::kCorrupt);
    EXPECT_EQ(decode(tensor, 1, {{1, {0xFFFFFFFF}, {good}}}).status().code(), StatusCode::kCorrupt);
}
TEST(Decoder, Not_a_number_fills_all_and_the_next_step_is_clean) {
    const auto memory = make_memory(10000);
    ResultTensor tensor(5, memory.get(), 10000);
    tensor.fill_not_a_number();
    for (std::size_t i = 0; i < 10000; ++i) ASSERT_TRUE(std::isnan(memory.get()[i]));
    const std::vector<NodePayloads> next = {{1, {0}, {coded_list("topk(0.1) | f32", 10000, 5000, 3)}}};
    expect_equal(memory.get(), decode(tensor, 2, next), average_by_the_page(5, 2, 10000, next));
}
TEST(Decoder, Exact_copy_has_the_values_and_their_digest_and_the_next_step_is_clean) {
    const std::size_t elements = 9000;
    auto values = make_values(Shape::kGaussian, elements, 1);
    values[7] = -0.0F;
    values[8] = std::numeric_limits<float>::infinity();
    const auto memory = make_memory(elements);
    ResultTensor tensor(5, memory.get(), elements);
    const DecodeResult result = tensor.copy_exact(4, values);
    std::uint64_t digest = 0;
    for (std::size_t i = 0; i < elements; ++i) {
        ASSERT_EQ(float_bits(memory.get()[i]), float_bits(values[i]));
        digest +=
            codec::element_digest(codec::digest_key(5, 4, 0), static_cast<std::uint32_t>(i), float_bits(values[i]));
    }
    EXPECT_EQ(result.digest, digest);
    EXPECT_EQ(result.touched_elements, elements);
    const std::vector<NodePayloads> next = {{1, {0}, {coded_list("topk(0.1) | f32", elements, 5000, 3)}}};
    expect_equal(memory.get(), decode(tensor, 5, next), average_by_the_page(5, 5, elements, next));
}
TEST(Decoder, Empty_tensor_is_legal) {
    ResultTensor tensor(5, nullptr, 0);
    EXPECT_TRUE(decode(tensor, 1, {}).is_ok());
    tensor.fill_not_a_number();
    EXPECT_EQ(tensor.copy_exact(1, {}).touched_elements, 0U);
}
TEST(Decoder, Moved_tensor_remembers_what_was_touched) {
    const auto memory = make_memory(5000);
    ResultTensor first(5, memory.get(), 5000);
    ASSERT_TRUE(decode(first, 1, {{1, {0}, {coded_list("topk(0.1) | f32", 5000, 9000, 3)}}}).is_ok());
    ResultTensor second(std::move(first));
    const std::vector<NodePayloads> next = {{1, {0}, {coded_list("topk(0.1) | f32", 5000, 9000, 4)}}};
    expect_equal(memory.get(), decode(second, 2, next), average_by_the_page(5, 2, 5000, next));
}

}  // namespace
}  // namespace gradsieve::test

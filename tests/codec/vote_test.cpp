// sign(scale=none): signs without a size, of which the nodes' weighted majority is the result.
#include "codec/stages/vote.hpp"

#include "codec/decoder.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/payload_form.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace gradsieve::codec {
namespace {

using test::make_values;
using test::Shape;
using ::testing::HasSubstr;

const char* const kVotes = "all | sign(scale=none)";

/// What nodes' votes come to; `payloads`: of one chunk, a node each.
Result<std::vector<float>> decode_votes(const std::vector<Bytes>& payloads, const std::vector<float>& factors,
                                        std::size_t elements) {
    std::vector<float> memory(elements, 0.0F);
    std::vector<ChunkView> chunks;
    for (const Bytes& payload : payloads) chunks.push_back({0, payload});
    std::vector<Contribution> contributions;
    for (std::size_t node = 0; node < payloads.size(); ++node)
        contributions.push_back({factors[node], std::span(&chunks[node], payloads[node].empty() ? 0 : 1)});
    ResultTensor tensor(1, memory.data(), elements);
    GRADSIEVE_ASSIGN(const DecodeResult result, tensor.decode_average(1, contributions));
    EXPECT_EQ(result.touched_elements, elements);
    return memory;
}
Bytes votes_of(const std::vector<float>& values) {
    return test::code(*parse_pipeline(kVotes), values.size(), true, {}, values).payload;
}

TEST(Vote, Payloads_are_three_bytes_and_a_bit_for_each_element) {
    EXPECT_EQ(test::octets(votes_of({1, -2, 0, -0.0F, -1e-40F})), (std::vector<std::uint8_t>{5, 6, 0, 0b10010}));
    EXPECT_EQ(votes_of(std::vector<float>(4097, 1.0F)).size(), 3U + 513U);
    EXPECT_FALSE(has_residual(*parse_pipeline(kVotes)));
    EXPECT_EQ(combine_of(parse_pipeline(kVotes)->quantizer.kind), Combine::kMajority);
    EXPECT_EQ(combine_of(parse_pipeline("all | sign")->quantizer.kind), Combine::kGather);
}
TEST(Vote, The_larger_weight_wins_and_ties_are_positive) {
    const std::vector<Bytes> nodes = {votes_of({1, 1, -1, -1}), votes_of({1, -1, 1, -1}), votes_of({1, -1, -1, -1})};
    const float third = 1.0F / 3;
    EXPECT_THAT(*decode_votes(nodes, {third, third, third}, 4), ::testing::ElementsAre(1, -1, -1, -1));
    EXPECT_THAT(*decode_votes(nodes, {0.6F, 0.2F, 0.2F}, 4), ::testing::ElementsAre(1, 1, -1, -1));
    EXPECT_THAT(*decode_votes(nodes, {0.5F, 0.25F, 0.25F}, 4), ::testing::ElementsAre(1, 1, -1, -1)) << "a tie";
    EXPECT_THAT(*decode_votes({nodes[0], nodes[2]}, {0.5F, 0.5F}, 4), ::testing::ElementsAre(1, 1, -1, -1));
    EXPECT_THAT(*decode_votes({nodes[0], Bytes{}, nodes[2]}, {0.25F, 0.5F, 0.25F}, 4),
                ::testing::ElementsAre(1, 1, -1, -1))
        << "a node without a payload does not vote";
}
TEST(Vote, Ties_are_told_whatever_the_shares_are_rounded_to) {
    // a + b against c with a + b = c, in every order, for all worlds up to 60 ranks.
    for (unsigned world = 2; world <= 60; ++world)
        for (unsigned a = 1; 2 * a < world; ++a) {
            const unsigned c = world / 2;
            if (world % 2 != 0 || a >= c) continue;
            const auto share = [&](unsigned ranks) { return static_cast<float>(ranks) / static_cast<float>(world); };
            const std::vector<Bytes> one_way = {votes_of({1}), votes_of({1}), votes_of({-1})};
            const std::vector<Bytes> other_way = {votes_of({-1}), votes_of({-1}), votes_of({1})};
            EXPECT_EQ(decode_votes(one_way, {share(a), share(c - a), share(c)}, 1)->at(0), 1) << world << " " << a;
            EXPECT_EQ(decode_votes(other_way, {share(a), share(c - a), share(c)}, 1)->at(0), 1) << world << " " << a;
        }
    // One rank of many decides.
    for (const unsigned world : {3U, 999U, 99999U}) {
        const auto share = [&](unsigned ranks) { return static_cast<float>(ranks) / static_cast<float>(world); };
        EXPECT_EQ(decode_votes({votes_of({-1}), votes_of({1})}, {share(world / 2 + 1), share(world / 2)}, 1)->at(0), -1)
            << world;
    }
}
TEST(Vote, Whole_tensors_are_the_majority_of_all_nodes_element_by_element) {
    for (const std::size_t elements : {1, 31, 33, 4096, 4105, 20001}) {
        std::vector<Bytes> nodes;
        std::vector<std::vector<float>> values;
        for (unsigned node = 0; node < 5; ++node) {
            values.push_back(make_values(Shape::kGaussian, elements, 100 + node));
            nodes.push_back(votes_of(values.back()));
        }
        const auto decoded = decode_votes(nodes, std::vector<float>(5, 0.2F), elements);
        ASSERT_TRUE(decoded.is_ok()) << decoded.status().to_string();
        for (std::size_t i = 0; i < elements; ++i) {
            int sum = 0;
            for (const auto& of_node : values) sum += of_node[i] < 0 ? -1 : 1;
            ASSERT_EQ((*decoded)[i], sum >= 0 ? 1.0F : -1.0F) << elements << ", element " << i;
        }
    }
}
TEST(Vote, Votes_beside_values_are_refused) {
    const std::vector<float> values = {1, -1, 2};
    const Bytes mean = test::code(*parse_pipeline("all | sign"), 3, true, {}, values).payload;
    const auto mixed = decode_votes({votes_of(values), mean}, {0.5F, 0.5F}, 3);
    ASSERT_FALSE(mixed.is_ok());
    EXPECT_EQ(mixed.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(mixed.status().text(),
                HasSubstr("contribution 1: chunk 0: payload combine gather: allowed is majority, as of the chunk's "
                          "first payload"));
    EXPECT_FALSE(decode_votes({mean, votes_of(values)}, {0.5F, 0.5F}, 3).is_ok());
}
TEST(Vote, Lists_of_votes_are_refused) {
    const Bytes list = {std::byte{5}, std::byte{0x46}, std::byte{0}, std::byte{1},
                        std::byte{0}, std::byte{1},    std::byte{0}};
    EXPECT_THAT(validate_chunk(list, 8).text(), HasSubstr("index form of vote 2: allowed is 0 (every)"));
}

class VoteForm : public test::PayloadForm {};
INSTANTIATE_TEST_SUITE_P(All, VoteForm, ::testing::Values(CpuForm::kScalar, CpuForm::kAvx2, CpuForm::kAvx512));
TEST_P(VoteForm, Sums_become_signs_and_their_digest_is_that_of_the_signs) {
    for (const std::uint32_t count : {1U, 31U, 32U, 100U, 4096U}) {
        std::vector<std::vector<float>> values;
        std::vector<Bytes> nodes;
        std::vector<DenseTerm> terms;
        for (unsigned node = 0; node < 3; ++node) nodes.push_back(votes_of(make_values(Shape::kGaussian, count, node)));
        for (const Bytes& payload : nodes)
            terms.push_back({DenseTerm::Kind::kSign, 1.0F / 3, payload.data() + 3, 1.0F / 3});
        std::vector<float> sums(count);
        std::vector<float> votes(count);
        bool is_finite = true;
        static_cast<void>(kernels().sum_dense(terms.data(), 3, sums.data(), false, 0, count, 9, &is_finite));
        const auto digest = kernels().vote_dense(terms.data(), 3, vote_limit(3), votes.data(), false, 0, count, 9);
        for (std::uint32_t i = 0; i < count; ++i)
            ASSERT_EQ(votes[i], vote_of(sums[i], vote_limit(3))) << sums[i] << ", element " << i;
        EXPECT_EQ(digest, kernels().digest_run(votes.data(), 0, count, 9)) << count;
    }
}

}  // namespace
}  // namespace gradsieve::codec

// Known answers of Philox4x32-10, from its authors' distribution, and how streams are keyed.
#include "codec/philox.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace gradsieve::codec {
namespace {

std::vector<std::uint32_t> words(const PhiloxBlock& counter, PhiloxKey key) {
    const PhiloxBlock block = philox(counter, key);
    return {std::begin(block.words), std::end(block.words)};
}

TEST(Philox, Gives_the_published_answers) {
    constexpr std::uint32_t kOnes = ~0U;
    EXPECT_EQ(words({{0, 0, 0, 0}}, {0, 0}),
              (std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(words({{kOnes, kOnes, kOnes, kOnes}}, {kOnes, kOnes}),
              (std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(words({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {0xa4093822, 0x299f31d0}),
              (std::vector<std::uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}
TEST(Philox, Nodes_and_jobs_have_seeds_of_their_own) {
    std::set<std::uint64_t> seeds;
    for (const char* job : {"a", "b", ""})
        for (const char* node : {"a", "b", ""}) seeds.insert(rounding_seed(job, node));
    EXPECT_EQ(seeds.size(), 9U);
}
TEST(Philox, Streams_of_other_seeds_tensors_steps_and_blocks_differ) {
    std::set<std::vector<std::uint32_t>> seen;
    std::size_t drawn = 0;
    for (const std::uint64_t seed : {0ULL, 1ULL, 1ULL << 40U})
        for (const TensorId tensor : {0ULL, 1ULL, 1ULL << 40U})
            for (const Step step : {1ULL, 2ULL, 1ULL << 40U})
                for (const std::uint64_t block : {0ULL, 1ULL, 1ULL << 40U}) {
                    const RandomStream stream = rounding_stream(seed, tensor, step);
                    seen.insert(words(rounding_counter(stream, block), stream.key));
                    ++drawn;
                }
    EXPECT_EQ(seen.size(), drawn);
}
TEST(Philox, Rounds_that_blocks_share_give_the_same_words) {
    for (const std::uint64_t seed : {0ULL, 5ULL, ~0ULL})
        for (const Step step : {Step{0}, Step{7}, Step{1} << 32U, ~Step{0}}) {
            const RandomStream stream = rounding_stream(seed, 9, step);
            const StreamRounds rounds = stream_rounds(stream);
            for (std::uint32_t block = 0; block < 1000; ++block)
                for (const std::uint32_t number : {block, block * 0x9E3779B9U, ~block}) {
                    const PhiloxBlock drawn = random_block(rounds, number);
                    EXPECT_EQ(std::vector<std::uint32_t>(std::begin(drawn.words), std::end(drawn.words)),
                              words(rounding_counter(stream, number), stream.key));
                }
        }
}

}  // namespace
}  // namespace gradsieve::codec

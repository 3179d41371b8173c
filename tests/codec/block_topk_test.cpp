// Block top-k: what it keeps of each block, its constants a = g = k/b and delta = b/k with where they are reached, and
// that error feedback contracts at every step. Equality with the reference, conservation and the rest are in the suites
// of every pipeline.
#include "codec/select_blocks.hpp"
#include "codec/select_topk.hpp"
#include "encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"
#include "tests/codec/random_trials.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

using test::make_values;
using test::Shape;

std::string text_of(double ratio, std::size_t block) {
    return "block_topk(" + std::to_string(ratio) + ", block=" + std::to_string(block) + ")";
}
std::vector<float> decoded_once(double ratio, std::size_t block, const std::vector<float>& values) {
    EncodeLoop loop(*parse_pipeline(text_of(ratio, block)), values.size(), 1, 0);
    return decode_payloads(loop.step(values).chunks, values.size());
}

TEST(BlockTopK, Each_block_keeps_its_largest_and_drops_none_that_is_larger) {
    for (const std::size_t block : {64U, 256U, 4096U})
        for (const double ratio : {0.001, 0.1, 0.7})
            for (const std::size_t elements :
                 {std::size_t{1}, std::size_t{63}, std::size_t{4097}, std::size_t{40000}}) {
                const auto values = make_values(Shape::kHeavyTailed, elements, elements);
                const auto decoded = decoded_once(ratio, block, values);
                for (std::size_t first = 0; first < elements; first += block) {
                    const std::size_t size = std::min(block, elements - first);
                    std::size_t kept = 0;
                    float least_kept = INFINITY;
                    float most_dropped = 0;
                    for (std::size_t i = first; i < first + size; ++i) {
                        ASSERT_TRUE(decoded[i] == values[i] || decoded[i] == 0);
                        if (decoded[i] != 0) {
                            ++kept;
                            least_kept = std::min(least_kept, std::fabs(values[i]));
                        } else {
                            most_dropped = std::max(most_dropped, std::fabs(values[i]));
                        }
                    }
                    ASSERT_EQ(kept, top_k_count(ratio, size)) << block << " " << ratio << " " << elements;
                    ASSERT_GE(least_kept, most_dropped);
                }
            }
}
TEST(BlockTopK, Equal_magnitudes_go_by_index_and_zeros_are_never_sent) {
    std::vector<float> values(200, -0.5F);
    for (std::size_t i = 64; i < 128; ++i) values[i] = i == 100 ? 1e-40F : 0.0F;
    const auto decoded = decoded_once(0.1, 64, values);
    std::vector<ElementCount> expected;
    for (const ElementCount first : {0U, 128U})
        for (ElementCount i = 0; i < 6; ++i) expected.push_back(first + i);
    expected.insert(expected.begin() + 6, 100);
    expected.push_back(192);  // eight elements are left: one
    EXPECT_EQ(sent_elements(decoded), expected);
    EXPECT_TRUE(sent_elements(decoded_once(0.5, 64, std::vector<float>(100, -0.0F))).empty());
}
TEST(BlockTopK, Everything_is_sent_with_a_ratio_of_one) {
    const auto values = make_values(Shape::kGaussian, 9000, 3);
    EXPECT_TRUE(same_bits(decoded_once(1, 128, values), values));
}
TEST(BlockTopK, Candidates_are_cut_alike_whether_counted_or_put_in_order) {
    for (const std::size_t count : {1U, 2U, 1023U, 1024U, 1025U, 4096U})
        for (const std::size_t ties : {1U, 3U, 50U}) {
            std::mt19937_64 random(count + ties);
            SpanCells cells;
            cells.ensure(count);
            std::vector<std::pair<float, std::uint32_t>> order;
            for (std::uint32_t i = 0; i < count; ++i) {
                cells.indices.data()[i] = i;
                cells.values.data()[i] = static_cast<float>(1 + random() % (count / ties + 1)) * (i % 2 == 0 ? 1 : -1);
                order.emplace_back(-std::fabs(cells.values.data()[i]), i);
            }
            std::sort(order.begin(), order.end());
            const std::size_t k = top_k_count(0.3, count);
            std::vector<std::uint32_t> expected;
            for (std::size_t i = 0; i < k; ++i) expected.push_back(order[i].second);
            std::sort(expected.begin(), expected.end());
            // From no floor, one that lets enough through, one that does not, and none that could.
            for (const float at : {0.0F, std::fabs(order[k - 1].first) / 2, -2 * order[0].first, INFINITY}) {
                SpanCells copy;
                copy.ensure(count);
                std::copy_n(cells.indices.data(), count, copy.indices.data());
                std::copy_n(cells.values.data(), count, copy.values.data());
                auto floor = element::magnitude_bits(at);
                ASSERT_EQ(keep_block_best(0.3, 4096, static_cast<std::uint32_t>(count), count, copy, floor), k);
                EXPECT_TRUE(std::equal(expected.begin(), expected.end(), copy.indices.data())) << count << " " << at;
            }
        }
}
TEST(BlockTopK, Constants_are_reached_where_all_magnitudes_are_alike) {
    for (const std::size_t block : {64U, 1024U}) {
        const double share = static_cast<double>(top_k_count(0.1, block)) / static_cast<double>(block);
        for (const Shape shape :
             {Shape::kGaussian, Shape::kHeavyTailed, Shape::kConstant, Shape::kOneHot, Shape::kAlternating}) {
            const auto values = make_values(shape, 16 * block, block);
            const auto decoded = decoded_once(0.1, block, values);
            double error = 0;
            for (std::size_t i = 0; i < values.size(); ++i) error += std::pow(double{values[i]} - decoded[i], 2);
            const double normalized = error / square_norm(values);
            EXPECT_LE(normalized, 1 - share + 1e-12) << test::shape_name(shape);
            EXPECT_NEAR(normalized, shape == Shape::kConstant ? 1 - share : normalized, 1e-12) << "delta = b/k";
            EXPECT_NEAR(square_norm(decoded) / square_norm(values), 1 - normalized, 1e-9) << "a and g are alike";
        }
    }
}
TEST(BlockTopK, Error_feedback_contracts_at_every_step) {
    constexpr ElementCount kElements = 10000;
    std::mt19937_64 random(81);
    EncodeLoop loop(*parse_pipeline("block_topk(0.05, block=256)"), kElements, 1, 0);
    for (int step = 0; step < 10; ++step) {
        const auto gradient = make_gradient(DataKind::kHeavyTailed, kElements, random);
        std::vector<float> sum(loop.residual().begin(), loop.residual().end());
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
        static_cast<void>(loop.step(gradient));
        // The last block has 16 elements and sends one.
        EXPECT_LE(square_norm(loop.residual()), (1 - 12.0 / 256) * square_norm(sum)) << "step " << step;
    }
}

}  // namespace
}  // namespace gradsieve::codec

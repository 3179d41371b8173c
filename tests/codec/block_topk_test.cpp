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
            // From no floor, one that lets enough through, one that lets just the best through, and two that hide some.
            const float kth = std::fabs(order[k - 1].first);
            for (const float at : {0.0F, kth / 2, kth, kth * 1.01F, INFINITY}) {
                const std::uint32_t floor = std::max(1U, element::magnitude_bits(at));
                const auto is_hidden = [&](const auto& cell) { return element::magnitude_bits(cell.first) < floor; };
                SpanCells listed;
                listed.ensure(count);
                std::size_t cell = 0;
                for (std::uint32_t i = 0; i < count; ++i) {
                    if (element::magnitude_bits(cells.values.data()[i]) < floor) continue;
                    listed.indices.data()[cell] = i;
                    listed.values.data()[cell++] = cells.values.data()[i];
                }
                std::uint32_t next_floor = 0;
                const auto kept = keep_block_best({0.3, 4096}, {0, static_cast<std::uint32_t>(count), cell, floor},
                                                  listed, next_floor);
                ASSERT_EQ(kept.has_value(),
                          !std::any_of(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), is_hidden));
                if (!kept) continue;
                ASSERT_EQ(*kept, k);
                EXPECT_TRUE(std::equal(expected.begin(), expected.end(), listed.indices.data())) << count << " " << at;
                EXPECT_LE(next_floor, std::max(1U, element::magnitude_bits(kth)));
            }
        }
}
TEST(BlockTopK, What_a_floor_hid_from_a_later_block_is_listed_again) {
    // The floor comes from the first span; in the second one, one block lies below it and one holds nothing.
    constexpr std::size_t kSpan = std::size_t{1} << 14U;
    auto values = make_values(Shape::kGaussian, 3 * kSpan + 100, 4);
    for (std::size_t i = kSpan + 4096; i < kSpan + 8192; ++i) values[i] *= 0x1p-20F;
    for (std::size_t i = kSpan + 8192; i < kSpan + 12288; ++i) values[i] = 0;
    for (const std::size_t block : {64U, 4096U}) {
        const auto decoded = decoded_once(0.02, block, values);
        for (std::size_t first = 0; first < values.size(); first += block) {
            const std::size_t size = std::min(block, values.size() - first);
            const auto from = decoded.begin() + static_cast<std::ptrdiff_t>(first);
            const auto sent =
                std::count_if(from, from + static_cast<std::ptrdiff_t>(size), [](float value) { return value != 0; });
            const bool is_empty = first >= kSpan + 8192 && first < kSpan + 12288;
            ASSERT_EQ(static_cast<std::size_t>(sent), is_empty ? 0 : top_k_count(0.02, size)) << block << " " << first;
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

#include "codec/select_topk.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <numeric>
#include <random>

namespace gradsieve::codec {
namespace {

/// Positions of the k largest magnitudes by sorting, the lower position first among equals; ascending.
std::vector<std::uint32_t> sorted_top_k(const std::vector<float>& values, std::size_t k) {
    std::vector<std::uint32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return std::fabs(values[a]) > std::fabs(values[b]); });
    order.resize(std::min(k, order.size()));
    std::sort(order.begin(), order.end());
    return order;
}

/// Feeds values in spans through a collector, as the dense pass does.
std::vector<std::uint32_t> collect(const std::vector<float>& values, std::size_t k, std::uint32_t floor,
                                   std::size_t span, bool& ret_has_enough) {
    SelectionList list;
    TopKCollector collector;
    collector.begin(list, k, floor);
    list.begin_chunk(0);
    SpanCells cells;
    cells.ensure(span);
    for (std::size_t first = 0; first < values.size(); first += span) {
        const std::size_t elements = std::min(span, values.size() - first);
        collector.raise_floor();
        std::size_t listed = 0;
        for (std::size_t element = first; element < first + elements; ++element) {
            const auto bits = std::bit_cast<std::uint32_t>(std::fabs(values[element]));
            if (bits < collector.floor()) continue;
            cells.indices.data()[listed] = static_cast<std::uint32_t>(element);
            cells.values.data()[listed++] = values[element];
        }
        list.append(cells, listed, false);
    }
    ret_has_enough = collector.has_enough();
    static_cast<void>(collector.finish());
    const auto indices = list.indices(0);
    return {indices.begin(), indices.end()};
}

TEST(TopKSelect, Count_is_the_floor_but_at_least_one) {
    EXPECT_EQ(top_k_count(0.01, 0), 0U);
    EXPECT_EQ(top_k_count(0.01, 1), 1U);
    EXPECT_EQ(top_k_count(0.01, 99), 1U);
    EXPECT_EQ(top_k_count(0.01, 200), 2U);
    EXPECT_EQ(top_k_count(0.01, 299), 2U);
    EXPECT_EQ(top_k_count(1.0, 299), 299U);
    EXPECT_EQ(top_k_count(1e-12, ElementCount{1} << 40U), 1U);
}
TEST(TopKSelect, Cutoff_is_the_kth_magnitude_and_the_ties_that_fit) {
    const std::vector<float> values = {1.0F, -2.0F, 2.0F, 0.5F, -2.0F};
    const TopKCutoff cutoff = find_top_k_cutoff(values, 2);
    EXPECT_EQ(cutoff.magnitude, std::bit_cast<std::uint32_t>(2.0F));
    EXPECT_EQ(cutoff.ties_kept, 2U);
    EXPECT_EQ(find_top_k_cutoff(values, 4).magnitude, std::bit_cast<std::uint32_t>(1.0F));
    EXPECT_EQ(find_top_k_cutoff(values, 5).magnitude, std::bit_cast<std::uint32_t>(0.5F));
}
TEST(TopKSelect, Any_values_and_k_agree_with_sorting) {
    EXPECT_TRUE(rc::check("cutoff against a sort", [] {
        // Few distinct magnitudes, so that ties are common; all exponents, so that every digit is used.
        const auto values = *rc::gen::nonEmpty(rc::gen::container<std::vector<float>>(rc::gen::map(
            rc::gen::pair(rc::gen::inRange(-140, 120), rc::gen::inRange(-3, 4)),
            [](const auto& pair) { return std::ldexp(static_cast<float>(pair.second), pair.first / 20 * 20); })));
        const auto k = *rc::gen::inRange<std::size_t>(1, values.size() + 1);
        const TopKCutoff cutoff = find_top_k_cutoff(values, k);
        std::size_t above = 0;
        std::size_t equal = 0;
        for (const float value : values) {
            const auto bits = std::bit_cast<std::uint32_t>(std::fabs(value));
            above += bits > cutoff.magnitude ? 1 : 0;
            equal += bits == cutoff.magnitude ? 1 : 0;
        }
        RC_ASSERT(above + cutoff.ties_kept == k);
        RC_ASSERT(cutoff.ties_kept >= 1 && cutoff.ties_kept <= equal);
    }));
}
TEST(TopKSelect, A_list_that_overflows_many_times_still_keeps_the_k_best) {
    constexpr std::size_t kElements = 400000;
    std::mt19937_64 random(3);
    std::vector<float> rising(kElements);
    std::vector<float> ties(kElements);
    std::vector<float> noise(kElements);
    std::normal_distribution<float> normal;
    for (std::size_t element = 0; element < kElements; ++element) {
        rising[element] = 1.0F + static_cast<float>(element);  // each one displaces an earlier one
        ties[element] = element % 7 == 0 ? -3.0F : 3.0F;
        noise[element] = normal(random);
    }
    for (const auto& values : {rising, ties, noise}) {
        for (const std::size_t k : {1U, 1000U, 70000U}) {
            bool has_enough = false;
            EXPECT_EQ(collect(values, k, 1, 30000, has_enough), sorted_top_k(values, k)) << k;
            EXPECT_TRUE(has_enough);
        }
    }
}
TEST(TopKSelect, A_floor_too_high_is_noticed) {
    const std::vector<float> values = {1.0F, 2.0F, 3.0F};
    bool has_enough = true;
    static_cast<void>(collect(values, 2, std::bit_cast<std::uint32_t>(2.5F), 3, has_enough));
    EXPECT_FALSE(has_enough);
    static_cast<void>(collect(values, 2, std::bit_cast<std::uint32_t>(2.0F), 3, has_enough));
    EXPECT_TRUE(has_enough);
    static_cast<void>(collect({1.0F, 0.0F}, 2, 1, 2, has_enough));
    EXPECT_TRUE(has_enough) << "zeros are never listed: fewer than k is right without a guess";
    static_cast<void>(collect(values, 2, 0x7F800001U, 3, has_enough));
    EXPECT_TRUE(has_enough) << "a floor above every finite number is no guess at all";
}

TEST(TopKSelect, A_hint_keeps_the_threshold_and_follows_its_falls) {
    const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
    EXPECT_FALSE(TopKHint(0).is_known());
    const TopKHint first = TopKHint(0).next(bits(4.0F));
    ASSERT_TRUE(first.is_known());
    EXPECT_EQ(first.threshold(), bits(4.0F));
    EXPECT_EQ(first.floor(), bits(3.75F)) << "2^20 steps of the bit pattern below a power of two are a sixteenth";
    EXPECT_EQ(TopKHint(first.word()).floor(), first.floor()) << "the word holds all of it";
    // While the threshold rises the margin halves, down to 2^17 steps.
    TopKHint hint = first;
    for (int step = 0; step < 10; ++step) hint = hint.next(bits(4.0F));
    EXPECT_EQ(hint.floor(), bits(4.0F) - (1U << 17U));
    // A fall of 2^18 steps widens it to four to eight times that, but no further than 2^21.
    EXPECT_EQ(hint.next(bits(4.0F) - (1U << 18U)).floor(), bits(4.0F) - (1U << 18U) - (1U << 21U));
    EXPECT_EQ(hint.next(bits(1.0F)).floor(), bits(1.0F) - (1U << 21U));
}
TEST(TopKSelect, A_hint_is_nothing_without_a_threshold_or_with_a_strange_word) {
    EXPECT_FALSE(TopKHint(0).next(0).is_known()) << "fewer than k were there";
    EXPECT_FALSE(TopKHint(0x7F800011U).is_known()) << "infinity";
    EXPECT_FALSE(TopKHint(0xFFFFFFFFU).is_known());
    EXPECT_FALSE(TopKHint(0x40800000U | 16U).is_known()) << "no such margin";
    EXPECT_FALSE(TopKHint(0x40800000U | 22U).is_known());
    EXPECT_FALSE(TopKHint((1U << 17U) | 17U).is_known()) << "the floor would be zero";
}

}  // namespace
}  // namespace gradsieve::codec

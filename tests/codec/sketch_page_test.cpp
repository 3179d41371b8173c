// Both sides of sketch written once more, slowly and from docs/payload-format.md, "Sketches", alone: payloads, results,
// digests and residuals have the same bits.
#include "codec/philox.hpp"
#include "phase_loop.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace gradsieve::codec {
namespace {

using Floats = std::vector<float>;

struct Page {
    std::size_t elements = 0, rows = 0, columns = 0, kept = 0, block = 1;
    std::uint64_t key = 0;

    Page(std::size_t n, std::size_t row_count, std::size_t column_count, double ratio)
        : elements(n), rows(row_count), columns(column_count) {
        kept = std::min<std::size_t>(n, std::max<std::size_t>(1, std::size_t(std::floor(ratio * double(n)))));
        columns = std::max<std::size_t>(64, columns == 0 ? kept : std::min(columns, n));
        while (2 * block <= columns && 2 * block <= 1024) block *= 2;
    }
    [[nodiscard]] std::uint32_t word(std::uint64_t counter, std::uint32_t purpose, std::size_t row,
                                     std::size_t place) const {
        return philox({{std::uint32_t(counter), std::uint32_t(counter >> 32U) | purpose << 24U, std::uint32_t(row), 0}},
                      {std::uint32_t(key), std::uint32_t(key >> 32U)})
            .words[place];
    }
    [[nodiscard]] bool is_minus(std::size_t row, std::size_t i) const {
        return (word(i / 128, 9, row, i / 32 % 4) >> (i % 32) & 1U) != 0;
    }
    [[nodiscard]] std::size_t position(std::size_t row, std::size_t i) const {
        const std::size_t number = i / block;
        return (std::uint64_t{word(number / 4, 10, row, number % 4)} * columns >> 32U) + i % block;
    }
    [[nodiscard]] Floats sketch(const Floats& whole) const {
        Floats cells(rows * columns);
        for (std::size_t row = 0; row < rows; ++row) {
            Floats sums(columns + block);
            for (std::size_t i = 0; i < elements; ++i) {
                const float cut = std::min(std::max(whole[i], -0x1p96F), 0x1p96F);
                sums[position(row, i)] += is_minus(row, i) ? -cut : cut;
            }
            for (std::size_t cell = 0; cell < columns; ++cell) cells[row * columns + cell] = sums[cell];
            for (std::size_t cell = 0; cell < block; ++cell) cells[row * columns + cell] += sums[columns + cell];
        }
        return cells;
    }
    [[nodiscard]] std::vector<std::size_t> chosen(const Floats& mean) const {
        std::vector<std::pair<float, std::size_t>> order;
        for (std::size_t i = 0; i < elements; ++i) {
            Floats estimates;
            for (std::size_t row = 0; row < rows; ++row) {
                const float cell = mean[row * columns + position(row, i) % columns];
                estimates.push_back(is_minus(row, i) ? -cell : cell);
            }
            std::ranges::sort(estimates);
            order.emplace_back(-std::fabs(estimates[rows / 2]), i);
        }
        std::ranges::sort(order);
        std::vector<std::size_t> indices;
        for (std::size_t at = 0; at < kept; ++at) indices.push_back(order[at].second);
        return indices;
    }
};

Floats mean_of(const std::vector<Floats>& nodes) {
    Floats mean(nodes[0].size());
    const float factor = 1.0F / static_cast<float>(nodes.size());
    for (const Floats& node : nodes)
        for (std::size_t at = 0; at < mean.size(); ++at) mean[at] += factor * node[at];
    return mean;
}

TEST(SketchPage, Says_all_that_both_sides_compute) {
    struct Case {
        std::size_t elements, rows, columns;
        double ratio;
    };
    for (const Case& one : {Case{3001, 5, 0, 0.03},
                            {2500, 3, 100, 0.01},
                            {900, 7, 64, 0.02},
                            {5000, 1, 1500, 0.1},
                            {1, 5, 0, 0.01},
                            {70, 3, 1000, 0.05}}) {
        constexpr std::size_t kNodes = 3;
        std::mt19937_64 random(one.elements);
        std::normal_distribution<float> normal;
        Page page(one.elements, one.rows, one.columns, one.ratio);
        PhaseLoop loop("sketch(" + std::to_string(one.ratio) + ", " + std::to_string(one.rows) + ", " +
                           (one.columns == 0 ? "auto" : std::to_string(one.columns)) + ")",
                       one.elements, kNodes);
        std::vector<Floats> residuals(kNodes, Floats(one.elements));
        // Other scales than the last step's, so that no threshold is as expected.
        for (const float scale : {1.0F, 1.0F, 1e-6F, 1e6F, 1e3F}) {
            const Step step = loop.next_step();
            page.key = mix64(mix64(mix64(PhaseLoop::kSelectionSeed) + tensor_id("w")) + step);
            std::vector<Floats> gradients(kNodes, Floats(one.elements)), sketches, values(kNodes);
            for (std::size_t node = 0; node < kNodes; ++node) {
                for (float& value : gradients[node]) value = scale * normal(random);
                for (std::size_t at = 0; at < one.elements; ++at) residuals[node][at] += gradients[node][at];
                sketches.push_back(page.sketch(residuals[node]));
            }
            auto chosen = page.chosen(mean_of(sketches));
            std::ranges::sort(chosen);
            for (std::size_t node = 0; node < kNodes; ++node)
                for (const std::size_t at : chosen) values[node].push_back(std::exchange(residuals[node][at], 0.0F));
            const Floats means = mean_of(values);
            Floats expected(one.elements);
            std::uint64_t digest = 0;
            for (std::size_t at = 0; at < chosen.size(); ++at) {
                expected[chosen[at]] = means[at];
                digest += mix64(mix64(mix64(mix64(tensor_id("w")) + step)) +
                                (std::uint64_t{chosen[at]} << 32U | std::bit_cast<std::uint32_t>(means[at])));
            }
            const auto outcome = loop.step(gradients);
            EXPECT_TRUE(same_bits(outcome.averages[1], expected)) << one.elements << " step " << step;
            EXPECT_EQ(outcome.decoded[1].digest, digest);
            EXPECT_EQ(outcome.decoded[1].touched_elements, page.kept);
            for (std::size_t node = 0; node < kNodes; ++node)
                EXPECT_TRUE(same_bits(loop.residual(node), residuals[node])) << one.elements << " step " << step;
        }
    }
}
TEST(SketchPage, Payloads_are_rows_behind_one_another) {
    Page page(3001, 5, 0, 0.03);
    PhaseLoop loop("sketch(0.03)", 3001, 1);
    page.key = mix64(mix64(mix64(PhaseLoop::kSelectionSeed) + tensor_id("w")) + loop.next_step());
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    Floats gradient(3001);
    for (float& value : gradient) value = normal(random);
    const auto encoded = loop.encode(0, 0, gradient);
    ASSERT_TRUE(encoded.is_ok());
    ASSERT_EQ(encoded->chunks.size(), 1U);
    Floats cells(5 * page.columns);
    const auto bytes = encoded->chunks[0].bytes.view();
    ASSERT_TRUE(read_exact_chunk(bytes, cells).is_ok());
    EXPECT_TRUE(same_bits(cells, page.sketch(gradient)));
}

}  // namespace
}  // namespace gradsieve::codec

// Both sides of lowrank written once more, slowly and from docs/payload-format.md, "Factors", alone: payloads, results
// and residuals have the same bits.
#include "codec/philox.hpp"
#include "phase_loop.hpp"

#include <bit>
#include <cmath>

namespace gradsieve::codec {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

/// Strided lanes in order, then each takes the one half as far away.
template <typename T>
T in_lanes(const std::vector<T>& terms, std::size_t lane_count) {
    std::vector<T> lanes(lane_count);
    for (std::size_t at = 0; at < terms.size(); ++at) lanes[at % lane_count] += terms[at];
    for (std::size_t half = lane_count / 2; half > 0; half /= 2)
        for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
}
double product(const Doubles& left, const Doubles& right) {
    Doubles terms(left.size());
    for (std::size_t at = 0; at < terms.size(); ++at) terms[at] = left[at] * right[at];
    return in_lanes(terms, 8);
}

struct Matrix {
    std::size_t rows = 0, columns = 0, rank = 0;
    Floats values;  ///< what the last row lacks is not there
    [[nodiscard]] std::size_t row_end(std::size_t row) const {
        return std::min(columns, values.size() - row * columns);
    }
};

/// Q, transposed.
Floats step_factor(const Floats& before, const Matrix& matrix, std::uint64_t seed, TensorId tensor, Step step) {
    Floats factor = before;
    const std::uint64_t key = mix64(mix64(mix64(seed) + tensor) + step);
    for (std::size_t k = 0; k < matrix.rank; ++k) {
        const auto norm = [&] {
            Doubles row(factor.begin() + std::ptrdiff_t(k * matrix.columns),
                        factor.begin() + std::ptrdiff_t((k + 1) * matrix.columns));
            return std::sqrt(product(row, row));
        };
        if (norm() == 0)
            for (std::size_t j = 0; j < matrix.columns; ++j) {
                const auto words = philox({{std::uint32_t(j / 4), 8U << 24U, std::uint32_t(k), 0}},
                                          {std::uint32_t(key), std::uint32_t(key >> 32U)});
                factor[k * matrix.columns + j] =
                    static_cast<float>(std::bit_cast<std::int32_t>(words.words[j % 4])) * 0x1p-31F;
            }
        const double length = norm();
        for (std::size_t j = 0; j < matrix.columns; ++j) {
            float& value = factor[k * matrix.columns + j];
            value = static_cast<float>(static_cast<double>(value) / length);
        }
    }
    return factor;
}
Floats left_factor(const Matrix& matrix, const Floats& factor) {
    Floats left;
    for (std::size_t row = 0; row < matrix.rows; ++row)
        for (std::size_t k = 0; k < matrix.rank; ++k) {
            Floats terms;
            for (std::size_t j = 0; j < matrix.row_end(row); ++j)
                terms.push_back(matrix.values[row * matrix.columns + j] * factor[k * matrix.columns + j]);
            left.push_back(in_lanes(terms, 32));
        }
    return left;
}
Floats orthonormal(const Floats& mean, const Matrix& matrix) {
    std::vector<Doubles> columns(matrix.rank);
    for (std::size_t at = 0; at < mean.size(); ++at) columns[at % matrix.rank].push_back(double{mean[at]});
    for (std::size_t k = 0; k < matrix.rank; ++k) {
        const double before = std::sqrt(product(columns[k], columns[k]));
        for (int twice = 0; twice < 2; ++twice)
            for (std::size_t other = 0; other < k; ++other) {
                const double share = product(columns[k], columns[other]);
                for (std::size_t row = 0; row < matrix.rows; ++row) columns[k][row] -= share * columns[other][row];
            }
        const double left = std::sqrt(product(columns[k], columns[k]));
        for (auto& value : columns[k]) value = left > before * 0x1p-20 ? value / left : 0;
    }
    Floats result(mean.size());
    for (std::size_t at = 0; at < mean.size(); ++at)
        result[at] = static_cast<float>(columns[at % matrix.rank][at / matrix.rank]);
    return result;
}
Floats right_factor(const Matrix& matrix, const Floats& left) {
    Floats right(matrix.rank * matrix.columns);
    for (std::size_t row = 0; row < matrix.rows; ++row)
        for (std::size_t k = 0; k < matrix.rank; ++k)
            for (std::size_t j = 0; j < matrix.row_end(row); ++j)
                right[k * matrix.columns + j] += left[row * matrix.rank + k] * matrix.values[row * matrix.columns + j];
    return right;
}
Floats expanded(const Matrix& matrix, const Floats& left, const Floats& right) {
    Floats values(matrix.values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
        for (std::size_t k = 0; k < matrix.rank; ++k)
            values[i] += left[i / matrix.columns * matrix.rank + k] * right[k * matrix.columns + i % matrix.columns];
    return values;
}
Floats mean_of(const std::vector<Floats>& nodes) {
    Floats mean(nodes[0].size());
    const float factor = 1.0F / static_cast<float>(nodes.size());
    for (const Floats& node : nodes)
        for (std::size_t at = 0; at < mean.size(); ++at) mean[at] += factor * node[at];
    return mean;
}

TEST(LowRankPage, Says_all_that_both_sides_compute) {
    for (const std::size_t columns : {7U, 33U, 100U}) {
        constexpr std::size_t kElements = 997, kNodes = 3, kRank = 3;
        std::mt19937_64 random(columns);
        std::normal_distribution<float> normal;
        PhaseLoop loop("lowrank(3, " + std::to_string(columns) + ")", kElements, kNodes);
        std::vector<Floats> residuals(kNodes, Floats(kElements));
        Floats factor(kRank * columns);
        for (Step step = 1; step <= 3; ++step) {
            std::vector<Floats> gradients(kNodes, Floats(kElements));
            std::vector<Matrix> matrices;
            std::vector<Floats> lefts;
            std::vector<Floats> rights;
            for (std::size_t node = 0; node < kNodes; ++node) {
                for (float& value : gradients[node]) value = normal(random);
                matrices.push_back({(kElements + columns - 1) / columns, columns, kRank, residuals[node]});
                for (std::size_t at = 0; at < kElements; ++at) matrices[node].values[at] += gradients[node][at];
                lefts.push_back(
                    left_factor(matrices[node],
                                step_factor(factor, matrices[node], PhaseLoop::kSelectionSeed, tensor_id("w"), step)));
            }
            const Floats left = orthonormal(mean_of(lefts), matrices[0]);
            for (std::size_t node = 0; node < kNodes; ++node) {
                rights.push_back(right_factor(matrices[node], left));
                const Floats sent = expanded(matrices[node], left, rights[node]);
                for (std::size_t at = 0; at < kElements; ++at)
                    residuals[node][at] = matrices[node].values[at] - sent[at];
            }
            factor = mean_of(rights);
            const auto outcome = loop.step(gradients);
            EXPECT_TRUE(same_bits(outcome.averages[1], expanded(matrices[0], left, factor))) << columns << ' ' << step;
            EXPECT_TRUE(same_bits(loop.factor(0), factor)) << columns << ' ' << step;
            for (std::size_t node = 0; node < kNodes; ++node)
                EXPECT_TRUE(same_bits(loop.residual(node), residuals[node])) << columns << ' ' << step;
        }
    }
}

}  // namespace
}  // namespace gradsieve::codec

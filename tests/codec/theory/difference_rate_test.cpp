// How fast descent on what delta gives back converges, against a proved bound, where every node has another minimizer.
//
// x' = x - s H, H = mean h_i, h_i = h_i_before + C(grad f_i(x) - h_i_before). With a contraction by 1 - 1/delta, theta
// = 1 - sqrt(1 - 1/delta) and b = (1 - 1/delta) / theta, V = f(x) - f* + (s / theta) mean ||h_i - grad f_i(x)||^2 falls
// by the factor 1 - s mu at every step, if s <= 1 / (L + L~ sqrt(2 b / theta)), s mu <= theta / 2 and L~^2 is the mean
// of the L_i^2: f(x') <= f(x) - s/2 ||grad f||^2 - (1/(2s) - L/2) ||x' - x||^2 + s/2 mean ||h_i - grad f_i(x)||^2, and
// mean ||h_i' - grad f_i(x')||^2 <= (1 - theta) mean ||h_i - grad f_i(x)||^2 + b L~^2 ||x' - x||^2 by Young's
// inequality. So it is in EF21 (Richtarik, Sokolov, Fatkhullin 2021), for functions as those here.
#include "codec/difference.hpp"
#include "operator_theory.hpp"
#include "tests/codec/encoder_harness.hpp"

#include <cmath>
#include <memory>
#include <numeric>

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kSeed = 122;
using Vector = std::vector<double>;

/// Nodes that follow gradients which somebody else computes; all of them weigh the same.
class Followers {
public:
    Followers(const std::string& codec, std::size_t nodes, std::size_t dimensions)
        : average_(dimensions), result_(dimensions), tensor_(tensor_id("tensor"), result_.data(), dimensions) {
        for (std::size_t node = 0; node < nodes; ++node) {
            loops_.emplace_back(*parse_pipeline(codec), dimensions, 1, 0);
            loops_.back().set_random_seed(kSeed + node);
        }
    }
    Vector step(const std::vector<Vector>& gradients) {
        std::vector<EncodeResult> sent;
        std::vector<std::vector<ChunkView>> views(loops_.size());
        std::vector<Contribution> contributions;
        for (std::size_t node = 0; node < loops_.size(); ++node) {
            sent.push_back(loops_[node].step(std::vector<float>(gradients[node].begin(), gradients[node].end())));
            for (const auto& chunk : sent.back().chunks) views[node].push_back({chunk.chunk_index, chunk.bytes});
            contributions.push_back({1.0F / static_cast<float>(loops_.size()), views[node]});
        }
        std::vector<float> after(average_.size());
        EXPECT_TRUE(decode_differences(++step_, contributions, average_.data(), after.data(), tensor_).is_ok());
        average_ = after;
        return {result_.begin(), result_.end()};
    }
    [[nodiscard]] double sent(std::size_t node, std::size_t axis) { return loops_[node].residual()[axis]; }

private:
    std::vector<EncodeLoop> loops_;
    std::vector<float> average_;
    std::vector<float> result_;
    ResultTensor tensor_;
    Step step_ = 0;
};

// f_i(x) = <a_i, x>^2 + ||x||^2 / 4 with a_i = (-3, 2, 2), (2, -3, 2), (2, 2, -3), Top-1 and a rate of 0.01 from
// (1, 1, 1): without feedback x grows by 1 + 11/6 rate in every step; followed, it ends at the minimum.
TEST(DifferenceRate, Three_nodes_that_pull_apart_come_together) {
    const std::vector<Vector> a = {{-3, 2, 2}, {2, -3, 2}, {2, 2, -3}};
    const auto gradient = [&](std::size_t node, const Vector& x) {
        const double product = std::inner_product(x.begin(), x.end(), a[node].begin(), 0.0);
        Vector values(3);
        for (std::size_t axis = 0; axis < 3; ++axis) values[axis] = 2 * product * a[node][axis] + x[axis] / 2;
        return values;
    };
    const auto norm_after = [&](int steps, const auto& mean_of) {
        Vector x = {1, 1, 1};
        for (int step = 0; step < steps; ++step) {
            const std::vector<Vector> gradients = {gradient(0, x), gradient(1, x), gradient(2, x)};
            const Vector mean = mean_of(gradients);
            for (std::size_t axis = 0; axis < 3; ++axis) x[axis] -= 0.01 * mean[axis];
        }
        return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
    };
    const auto without_feedback = [](const std::vector<Vector>& gradients) {
        Vector mean(3);
        for (const Vector& values : gradients) {
            EncodeLoop loop(*parse_pipeline("topk(0.34) | f32"), 3, 1, 0);
            const auto sent = decode_payloads(loop.step(std::vector<float>(values.begin(), values.end())).chunks, 3);
            for (std::size_t axis = 0; axis < 3; ++axis) mean[axis] += sent[axis] / 3;
        }
        return mean;
    };
    EXPECT_NEAR(norm_after(200, without_feedback), std::sqrt(3.0) * std::pow(1 + 0.11 / 6, 200), 0.01);
    Followers followers("delta | topk(0.34) | f32", 3, 3);
    const double norm = norm_after(1000, [&](const auto& gradients) { return followers.step(gradients); });
    EXPECT_GT(norm, 0.9e-5);
    EXPECT_LT(norm, 1.5e-5) << "1.2e-5 by a computation in double";
}

class DifferenceRates : public ::testing::TestWithParam<std::size_t> {};

bool can_follow(const OperatorTheory& row) {
    return has_contraction(row) && parse_pipeline("delta | " + row.text).is_ok();
}

// f_i(x) = 1/2 sum of l_ij (x_j - c_ij)^2, l_ij in [1, 4].
TEST_P(DifferenceRates, Is_linear_though_every_node_has_another_minimizer) {
    constexpr std::size_t kDimensions = 40;
    constexpr std::size_t kNodes = 4;
    constexpr int kSteps = 150;
    const OperatorTheory& row = operator_theories()[GetParam()];
    std::mt19937_64 random(kSeed);
    std::uniform_real_distribution<double> curvature(1, 4);
    std::normal_distribution<double> center;
    std::vector<Vector> l(kNodes, Vector(kDimensions)), c(kNodes, Vector(kDimensions));
    Vector l_mean(kDimensions), best(kDimensions);
    for (std::size_t axis = 0; axis < kDimensions; ++axis) {
        for (std::size_t node = 0; node < kNodes; ++node) {
            l[node][axis] = curvature(random);
            c[node][axis] = center(random);
            l_mean[axis] += l[node][axis] / kNodes;
            best[axis] += l[node][axis] * c[node][axis] / kNodes;
        }
        best[axis] /= l_mean[axis];
    }
    const double mu = *std::ranges::min_element(l_mean);
    const double smooth = 4;
    const double delta = row.classes(kDimensions).delta;
    const double theta = 1 - std::sqrt(1 - 1 / delta);
    const double b = delta == 1 ? 0 : (1 - 1 / delta) / theta;
    const double rate = std::min(1 / (smooth + smooth * std::sqrt(2 * b / theta)), theta / (2 * mu));
    Followers followers("delta | " + row.text, kNodes, kDimensions);
    Vector x(kDimensions, 1.0);
    const auto above_best = [&] {
        double sum = 0;
        for (std::size_t axis = 0; axis < kDimensions; ++axis)
            sum += l_mean[axis] / 2 * std::pow(x[axis] - best[axis], 2);
        return sum;
    };
    double last = 0, first = 0;
    for (int step = 0; step <= kSteps; ++step) {
        std::vector<Vector> gradients(kNodes, Vector(kDimensions));
        for (std::size_t node = 0; node < kNodes; ++node)
            for (std::size_t axis = 0; axis < kDimensions; ++axis)
                gradients[node][axis] = l[node][axis] * (x[axis] - c[node][axis]);
        const Vector mean = followers.step(gradients);
        double apart = 0;
        for (std::size_t node = 0; node < kNodes; ++node)
            for (std::size_t axis = 0; axis < kDimensions; ++axis)
                apart += std::pow(followers.sent(node, axis) - gradients[node][axis], 2) / kNodes;
        const double now = above_best() + rate / theta * apart;
        if (step == 0) first = now;
        if (step > 0 && !row.is_random) {
            ASSERT_LE(now, last * (1 - rate * mu) * (1 + 1e-5) + 1e-10) << row.text << ", step " << step;
        }
        last = now;
        for (std::size_t axis = 0; axis < kDimensions; ++axis) x[axis] -= rate * mean[axis];
    }
    EXPECT_LE(last, first * std::pow(1 - rate * mu, kSteps) + 1e-9) << row.text << ", seed " << kSeed;
}
std::string row_name(const ::testing::TestParamInfo<std::size_t>& row) {
    return name_of(operator_theories()[row.param]);
}
INSTANTIATE_TEST_SUITE_P(Table, DifferenceRates, ::testing::ValuesIn(rows_with(can_follow)), row_name);
TEST(DifferenceRate, Most_contractions_may_stand_behind_delta) {
    EXPECT_GE(rows_with(can_follow).size(), rows_with(has_contraction).size() / 2);
}

}  // namespace
}  // namespace gradsieve::codec

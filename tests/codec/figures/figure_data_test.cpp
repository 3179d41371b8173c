// The figures' data against the captions of Beznosikov et al. 2020 and against numbers computed apart from this code.
#include "figure_data.hpp"

#include "codec/pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numbers>

namespace gradsieve::codec {
namespace {

constexpr const char* kDataset = "/usr/share/datasets/fashion-mnist";

/// Caption of figure 1: the greedy sparsifier's variance is about 0.86^(b/d), positions at their entropy.
TEST(FigureData, Top_k_errs_like_0_86_to_the_bits_per_element) {
    double products = 0;
    double squares = 0;
    int within = 0;
    for (const OperatorPoint& point : sparsifier_points(2)) {
        if (point.curve != "Top-k") continue;
        if (point.error > 0.1) {
            products += point.ideal_bits * std::log(point.error);
            squares += point.ideal_bits * point.ideal_bits;
        }
        if (point.knob < 0.05 || point.knob > 0.5) continue;
        const double base = std::pow(point.error, 1 / point.ideal_bits);
        EXPECT_GE(base, 0.835) << point.codec;
        EXPECT_LE(base, 0.870) << point.codec;
        EXPECT_NEAR(std::pow(point.error, 1 / point.bits), base, 0.003) << "with real positions: " << point.codec;
        EXPECT_LE(point.bits, point.ideal_bits * 1.02 + 0.01) << "positions cost hardly more: " << point.codec;
        ++within;
    }
    EXPECT_GE(within, 20);
    EXPECT_NEAR(std::exp(products / squares), 0.862, 0.005);
}
/// Caption of figure 1: almost 1 - (b/d) / 32. Which elements are drawn is chance; b counts the key as well.
TEST(FigureData, Rand_k_errs_linearly) {
    for (const OperatorPoint& point : sparsifier_points(1)) {
        if (point.curve != "Rand-k") continue;
        EXPECT_NEAR(point.error, 1 - point.bits / 32, 0.03) << point.knob;
        EXPECT_NEAR(point.bits, 32 * point.knob, 0.016) << "15 bytes of header and key: " << point.knob;
    }
}
/// Figure 3's form. The numbers for dithering are of one norm for the vector; here each of its three tiles has its own
/// largest magnitude, which is smaller in the mean.
TEST(FigureData, Deltas_on_gaussian_vectors_are_the_known_ones) {
    std::map<std::string, std::pair<double, double>> found;  // codec: delta, bits; the mean of vectors
    constexpr int kVectors = 3;
    for (const OperatorPoint& point : operator_points(kVectors)) {
        if (point.panel == "which elements, as f32") continue;  // Top-k has a curve in two
        auto& [delta, bits] = found[point.codec];
        delta += point.delta / kVectors;
        bits += point.bits / kVectors;
    }
    const struct {
        const char* codec;
        double delta;
        double bits;
        double tolerance;
    } known[] = {{"all | sign", std::numbers::pi / 2, 1.01, 0.01},
                 {"all | sign(scale=two_mean)", std::numbers::pi / 2, 1.02, 0.01},
                 {"all | exponential_dither(levels=4, norm=max, feedback=none)", 1.0962, 4.01, 0.01},
                 {"all | rounding(base=2.000000, mode=biased)", 1.0392, 8, 0.01},
                 {"all | natural(feedback=none)", 1.0817, 8, 0.01},
                 {"all | dither(levels=1, norm=max, feedback=none)", 3.23, 2.01, 0.08},
                 {"all | dither(levels=3, norm=max, feedback=none)", 1.306, 3.01, 0.05},
                 {"all | dither(levels=7, norm=max, feedback=none)", 1.0563, 4.01, 0.05},
                 {"all | integer(scale=1.300000, feedback=none)", 1.0986, 4.01, 0.01},
                 {"topk(0.010000) | f32", 11.84, 0.4003, 0.03},
                 {"topk(0.100000) | f32", 2.276, 3.668, 0.02}};
    for (const auto& row : known) {
        ASSERT_TRUE(found.contains(row.codec)) << row.codec;
        EXPECT_NEAR(found[row.codec].first / row.delta, 1, row.tolerance) << row.codec;
        EXPECT_NEAR(found[row.codec].second, row.bits, 0.02 + 0.01 * row.bits) << row.codec;
    }
}
/// variance and variance_hybrid are no operators on a vector: what they send goes by the steps before.
TEST(FigureData, Every_operator_of_the_stage_table_has_a_curve) {
    std::string codecs;
    for (const OperatorPoint& point : operator_points(1)) codecs += " " + point.codec;
    for (const StageRow& stage : stage_table()) {
        const bool is_operator = stage.role == "quantizer" || stage.role == "whole codec" ||
                                 (stage.role == "selector" && !stage.name.starts_with("variance"));
        if (!is_operator && stage.name != "rotate") continue;
        EXPECT_NE(codecs.find(" " + std::string(stage.name)), std::string::npos) << stage.name;
    }
}
/// Bentley and Floyd's subsets and independent draws lose the same; the largest elements are the best ones of f32.
TEST(FigureData, Selectors_are_in_the_order_that_theory_gives) {
    std::map<std::string, std::map<double, double>> errors;  // curve: share, error
    for (const OperatorPoint& point : operator_points(1))
        if (point.panel == "which elements, as f32") errors[point.curve][point.knob] = point.error;
    for (const auto& [share, least] : errors.at("Top-k")) {
        for (const char* curve : {"block Top-k", "gaussian_k", "sidco", "adaptive random", "Rand-k", "Bernoulli"})
            if (share <= 0.3) {  // the estimators may send a third more than k
                EXPECT_GE(errors.at(curve).at(share), curve[0] == 'g' || curve[0] == 's' ? 0.8 * least : least - 1e-6)
                    << curve << ' ' << share;
            }
        EXPECT_NEAR(errors.at("Bernoulli").at(share), 1 - share, 0.03) << share;
        if (errors.at("sketch").contains(share)) {
            EXPECT_GE(errors.at("sketch").at(share), least) << share;
        }
    }
    for (const auto& [rank, error] : errors.at("low rank, of 100 x 100"))
        EXPECT_LT(error, 1 - rank / 100) << "a rank holds more of a matrix than its share";
}
TEST(FigureData, Positions_chosen_by_auto_are_never_dearer_and_near_the_entropy) {
    std::map<double, double> least;
    std::map<double, double> chosen;
    for (const IndexPoint& point : index_points(std::uint64_t{1} << 20U)) {
        if (point.coder == "auto") {
            chosen[point.density] = point.bits;
            // Where most elements are kept only their gaps would be worth coding.
            EXPECT_LE(point.bits, std::max(1.1 * point.entropy + 0.01, point.density < 0.6 ? 0 : 1.1 / point.density))
                << point.density;
            continue;
        }
        auto [place, is_new] = least.try_emplace(point.density, point.bits);
        place->second = std::min(place->second, point.bits);
    }
    ASSERT_EQ(chosen.size(), least.size());
    for (const auto& [density, bits] : chosen) EXPECT_LE(bits, least[density] + 1e-9) << density;
}
/// Caption of figure 2: the results of Top-5 are 3 to 5 times better.
TEST(FigureData, Top_5_keeps_three_times_the_energy_of_rand_5_and_more) {
    if (!std::filesystem::exists(kDataset)) GTEST_SKIP() << "no " << kDataset << ": install dataset-fashion-mnist";
    std::map<std::string, std::pair<double, int>> ratios;
    for (const EnergyPoint& point : energy_points(kDataset)) {
        EXPECT_LE(point.top, 1 + 1e-6);
        EXPECT_GE(point.top, point.rand) << "Top-k keeps k/d of the energy at least";
        auto& [sum, count] = ratios[point.problem];
        sum += point.top / point.rand;
        ++count;
    }
    EXPECT_EQ(ratios.size(), 4U);
    for (const auto& [problem, ratio] : ratios) {
        EXPECT_GE(ratio.first / ratio.second, 3.0) << problem;
        RecordProperty(problem.substr(0, 9), std::to_string(ratio.first / ratio.second));
    }
}

}  // namespace
}  // namespace gradsieve::codec

// Figures 1 and 3 of Beznosikov et al. 2020: what operators lose of a vector, over what they send of it.
#include "figure_data.hpp"
#include "first_step.hpp"
#include "wire_parts.hpp"

#include <cmath>
#include <numbers>

namespace gradsieve::codec {
namespace {

enum class Kind { kContraction, kUnbiased };

/// A curve, and the panel of figure 3 that it is drawn in.
struct Curve {
    std::string panel;
    std::string name;
    Kind kind = Kind::kContraction;
};

OperatorPoint point_of(const Curve& curve, const std::string& codec, double knob, int vector) {
    auto [trial, sent] = run_first_step(codec, kFigureElements, kFigureSeed + static_cast<std::uint64_t>(vector));
    constexpr auto kCount = static_cast<double>(kFigureElements);
    OperatorPoint point{
        .panel = curve.panel, .curve = curve.name, .codec = codec, .knob = knob, .error = trial.normalized_error()};
    point.bits = 8.0 * static_cast<double>(sent.payload_bytes) / kCount;
    if (const auto pipeline = *parse_pipeline(codec); !has_phases(pipeline)) {
        const WireParts parts = wire_parts(trial.payloads(), kFigureElements);
        const double positions =
            is_keyed(pipeline.selector) ? 0 : subset_bits(kCount, static_cast<double>(parts.elements));
        point.ideal_bits = (8.0 * static_cast<double>(parts.scale_bytes + parts.value_bytes) + positions) / kCount;
    }
    point.delta = curve.kind == Kind::kUnbiased ? 1 + point.error : 1 / (1 - point.error);
    return point;
}

constexpr const char* kSelectors = "which elements, as f32";
constexpr const char* kLists = "the largest elements, in few bits";
constexpr const char* kSteps = "every element, in steps";
constexpr const char* kPowers = "every element, in powers, signs and floats";

/// Rand-k of a seed that all share: k values, and a key in place of positions.
OperatorPoint random_subset_point(double share, int vector) {
    return point_of({kSelectors, "Rand-k"}, "randk(" + std::to_string(share) + ") | f32", share, vector);
}

/// From 1/1000 to 1: close together where little is kept.
std::vector<double> shares() {
    std::vector<double> shares;
    for (int step = 0; step <= 20; ++step) shares.push_back(std::pow(10, -3 + 0.1 * step));
    for (int step = 3; step <= 19; ++step) shares.push_back(0.05 * step);
    return shares;
}

/// Adds the points of one panel, of one vector.
class Panel {
public:
    Panel(std::string name, int vector, std::vector<OperatorPoint>& ret_points)
        : name_(std::move(name)), vector_(vector), points_(ret_points) {}
    void add(const std::string& curve, const std::string& codec, double knob, Kind kind = Kind::kContraction) {
        points_.push_back(point_of({name_, curve, kind}, codec, knob, vector_));
    }

private:
    std::string name_;
    int vector_;
    std::vector<OperatorPoint>& points_;
};

void add_selectors(Panel panel) {
    for (const double share : shares()) {
        const std::string ratio = "(" + std::to_string(share);
        panel.add("Top-k", "topk" + ratio + ") | f32", share);
        panel.add("block Top-k", "block_topk" + ratio + ") | f32", share);
        panel.add("gaussian_k", "gaussian_k" + ratio + ") | f32", share);
        panel.add("sidco", "sidco" + ratio + ") | f32", share);
        panel.add("adaptive random", "adaptive_random" + ratio + ") | f32", share);
        panel.add("Rand-k", "randk" + ratio + ") | f32", share);
        panel.add("Bernoulli", "bernoulli" + ratio + ") | f32", share);
        panel.add("biased random, from p to p/4",
                  "biased_random" + ratio + ", " + std::to_string(share / 4) + ") | f32", share);
        if (share < 1.0 / 12) panel.add("sketch", "sketch" + ratio + ")", share);
    }
    for (const int rank : {1, 2, 4, 8, 12, 16, 20, 24})
        panel.add("low rank, of 100 x 100", "lowrank(" + std::to_string(rank) + ", 100)", rank);
}
void add_lists(Panel panel) {
    for (const double share : shares()) {
        const std::string top = "topk(" + std::to_string(share) + ") | ";
        panel.add("f32", top + "f32", share);
        panel.add("natural", top + "natural", share);
        panel.add("exponential dither(7)", top + "exponential_dither(levels=7)", share);
        panel.add("pow2(4)", top + "pow2(bits=4)", share);
        panel.add("dither(7)", top + "dither(levels=7)", share);
        panel.add("sign", top + "sign", share);
    }
    for (const double tau : {0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0})
        panel.add("threshold, ±tau", "threshold(" + std::to_string(tau) + ")", tau);
}
void add_steps(Panel panel) {
    for (const int levels : {1, 3, 7, 15, 31, 63, 127}) {
        const std::string dither = "dither(levels=" + std::to_string(levels) + ", norm=";
        for (const std::string norm : {"max", "l2"}) {
            panel.add("dither, " + norm + " norm", "all | " + dither + norm + ", feedback=none)", levels,
                      Kind::kUnbiased);
            panel.add("dither, " + norm + " norm, scaled by its bound", "all | " + dither + norm + ")", levels);
        }
        panel.add("dither, max norm, rotated", "rotate | all | " + dither + "max, feedback=none)", levels,
                  Kind::kUnbiased);
    }
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
        const std::string minmax = "all | minmax(bits=" + std::to_string(bits);
        panel.add("minmax", minmax + ", feedback=none)", bits, Kind::kUnbiased);
        panel.add("minmax, scaled by its bound", minmax + ")", bits);
    }
    for (const double scale : {0.5, 0.8, 1.3, 2.5, 5.0, 10.0, 20.0}) {
        const std::string integer = "all | integer(scale=" + std::to_string(scale);
        panel.add("integer", integer + ", feedback=none)", scale, Kind::kUnbiased);
        panel.add("integer, to the nearest", integer + ", mode=biased)", scale);
    }
    for (const double clip : {1.0, 1.5, 2.0, 2.5, 3.0})
        panel.add("ternary, clipped", "all | ternary(clip=" + std::to_string(clip) + ")", clip);
}
void add_powers(Panel panel) {
    for (const int levels : {1, 2, 4, 8, 16, 32})
        for (const std::string norm : {"max", "l2"}) {
            const std::string dither = "all | exponential_dither(levels=" + std::to_string(levels) + ", norm=" + norm;
            panel.add("exponential dither, " + norm + " norm", dither + ", feedback=none)", levels, Kind::kUnbiased);
            panel.add("exponential dither, " + norm + " norm, biased", dither + ", mode=biased)", levels);
        }
    for (const double base : {1.1, 1.25, 1.5, 2.0, 4.0, 8.0, 16.0}) {
        const std::string rounding = "all | rounding(base=" + std::to_string(base);
        panel.add("rounding", rounding + ", feedback=none)", base, Kind::kUnbiased);
        panel.add("rounding, biased", rounding + ", mode=biased)", base);
    }
    for (const int bits : {2, 3, 4, 5}) panel.add("pow2", "all | pow2(bits=" + std::to_string(bits) + ")", bits);
    panel.add("sign", "all | sign", 0);
    panel.add("sign, two means", "all | sign(scale=two_mean)", 0);
    panel.add("sign, rotated", "rotate | all | sign", 0);
    panel.add("natural", "all | natural(feedback=none)", 0, Kind::kUnbiased);
    panel.add("f16", "all | f16", 0);
    panel.add("bf16", "all | bf16", 0);
}

}  // namespace

double subset_bits(double elements, double kept) {
    const double ways = std::lgamma(elements + 1) - std::lgamma(kept + 1) - std::lgamma(elements - kept + 1);
    return ways / std::numbers::ln2;
}

std::vector<OperatorPoint> sparsifier_points(int vectors) {
    std::vector<OperatorPoint> points;
    for (const double share : shares())
        for (int vector = 0; vector < vectors; ++vector) {
            points.push_back(
                point_of({kSelectors, "Top-k"}, "topk(" + std::to_string(share) + ") | f32", share, vector));
            points.push_back(random_subset_point(share, vector));
        }
    return points;
}

std::vector<OperatorPoint> operator_points(int vectors) {
    std::vector<OperatorPoint> points;
    for (int vector = 0; vector < vectors; ++vector) {
        add_selectors({kSelectors, vector, points});
        add_lists({kLists, vector, points});
        add_steps({kSteps, vector, points});
        add_powers({kPowers, vector, points});
    }
    return points;
}

}  // namespace gradsieve::codec

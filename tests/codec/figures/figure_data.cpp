#include "figure_data.hpp"

#include "codec/noise_trial.hpp"
#include "wire_parts.hpp"

#include <cmath>
#include <numbers>
#include <stdexcept>

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kSeed = 12410;

NoiseTrial run_trial(const std::string& codec, ElementCount elements, std::uint64_t seed) {
    const auto pipeline = parse_pipeline(codec);
    if (!pipeline.is_ok()) throw std::runtime_error(pipeline.status().to_string());
    auto trial = NoiseTrial::make(*pipeline, elements, seed);
    if (!trial.is_ok()) throw std::runtime_error(trial.status().to_string());
    if (const auto sent = trial->step(); !sent.is_ok()) throw std::runtime_error(sent.status().to_string());
    if (const Status status = trial->decode(); !status.is_ok()) throw std::runtime_error(status.to_string());
    return std::move(*trial);
}

enum class Kind { kContraction, kUnbiased };

OperatorPoint point_of(const std::string& curve, const std::string& codec, double knob, Kind kind, int vector) {
    NoiseTrial trial = run_trial(codec, kFigureElements, kSeed + static_cast<std::uint64_t>(vector));
    const WireParts parts = wire_parts(trial.payloads(), kFigureElements);
    constexpr auto kCount = static_cast<double>(kFigureElements);
    OperatorPoint point{
        curve, codec, knob, 8.0 * static_cast<double>(parts.total()) / kCount, 0, trial.normalized_error(), 1};
    const auto kept = static_cast<double>(parts.elements);
    const double positions = is_keyed(parse_pipeline(codec)->selector) ? 0 : subset_bits(kCount, kept);
    point.ideal_bits = (8.0 * static_cast<double>(parts.scale_bytes + parts.value_bytes) + positions) / kCount;
    point.delta = kind == Kind::kUnbiased ? 1 + point.error : 1 / (1 - point.error);
    return point;
}
/// Rand-k of a seed that all share: k values, and a key in place of positions.
OperatorPoint random_subset_point(double share, int vector) {
    return point_of("Rand-k", "randk(" + std::to_string(share) + ") | f32", share, Kind::kContraction, vector);
}

/// From 1/1000 to 1: close together where little is kept.
std::vector<double> shares() {
    std::vector<double> shares;
    for (int step = 0; step <= 20; ++step) shares.push_back(std::pow(10, -3 + 0.1 * step));
    for (int step = 3; step <= 19; ++step) shares.push_back(0.05 * step);
    return shares;
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
                point_of("Top-k", "topk(" + std::to_string(share) + ") | f32", share, Kind::kContraction, vector));
            points.push_back(random_subset_point(share, vector));
        }
    return points;
}

std::vector<OperatorPoint> operator_points(int vectors) {
    std::vector<OperatorPoint> points;
    for (int vector = 0; vector < vectors; ++vector) {
        const auto add = [&](const std::string& curve, const std::string& codec, double knob, Kind kind) {
            points.push_back(point_of(curve, codec, knob, kind, vector));
        };
        for (const double share : shares()) {
            points.push_back(random_subset_point(share, vector));
            const std::string top = "topk(" + std::to_string(share) + ") | ";
            add("Top-k", top + "f32", share, Kind::kContraction);
            add("Top-k, natural", top + "natural", share, Kind::kContraction);
            add("Top-k, pow2(4)", top + "pow2(bits=4)", share, Kind::kContraction);
            add("Top-k, dither(7)", top + "dither(levels=7)", share, Kind::kContraction);
            add("Top-k, sign", top + "sign", share, Kind::kContraction);
            add("Top-k, exponential dither(7)", top + "exponential_dither(levels=7)", share, Kind::kContraction);
            add("block Top-k", "block_topk(" + std::to_string(share) + ")", share, Kind::kContraction);
        }
        for (const int levels : {1, 3, 7, 15, 31, 63, 127})
            for (const std::string norm : {"max", "l2"}) {
                const std::string dither = "all | dither(levels=" + std::to_string(levels) + ", norm=" + norm;
                add("dither, " + norm + " norm", dither + ", feedback=none)", levels, Kind::kUnbiased);
                add("dither, " + norm + " norm, scaled by its bound", dither + ")", levels, Kind::kContraction);
            }
        for (const int levels : {1, 2, 4, 8, 16, 32})
            for (const std::string norm : {"max", "l2"}) {
                const std::string dither =
                    "all | exponential_dither(levels=" + std::to_string(levels) + ", norm=" + norm;
                add("exponential dither, " + norm + " norm", dither + ", feedback=none)", levels, Kind::kUnbiased);
                add("exponential dither, " + norm + " norm, biased", dither + ", mode=biased)", levels,
                    Kind::kContraction);
            }
        for (const double base : {1.1, 1.25, 1.5, 2.0, 4.0, 8.0, 16.0}) {
            const std::string rounding = "all | rounding(base=" + std::to_string(base);
            add("rounding", rounding + ", feedback=none)", base, Kind::kUnbiased);
            add("rounding, biased", rounding + ", mode=biased)", base, Kind::kContraction);
        }
        for (const int bits : {2, 3, 4, 5, 6, 8}) {
            const std::string minmax = "all | minmax(bits=" + std::to_string(bits);
            add("minmax", minmax + ", feedback=none)", bits, Kind::kUnbiased);
            add("minmax, scaled by its bound", minmax + ")", bits, Kind::kContraction);
        }
        for (const double scale : {0.5, 0.8, 1.3, 2.5, 5.0, 10.0, 20.0}) {
            const std::string integer = "all | integer(scale=" + std::to_string(scale);
            add("integer", integer + ", feedback=none)", scale, Kind::kUnbiased);
            add("integer, to the nearest", integer + ", mode=biased)", scale, Kind::kContraction);
        }
        for (const double clip : {1.0, 1.5, 2.0, 2.5, 3.0})
            add("ternary, clipped", "all | ternary(clip=" + std::to_string(clip) + ")", clip, Kind::kContraction);
        for (const int bits : {2, 3, 4, 5})
            add("pow2", "all | pow2(bits=" + std::to_string(bits) + ")", bits, Kind::kContraction);
        for (const double tau : {0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0})
            add("threshold, ±tau", "threshold(" + std::to_string(tau) + ")", tau, Kind::kContraction);
        add("sign", "all | sign", 0, Kind::kContraction);
        add("sign, two means", "all | sign(scale=two_mean)", 0, Kind::kContraction);
        add("natural", "all | natural(feedback=none)", 0, Kind::kUnbiased);
        add("f16", "all | f16", 0, Kind::kContraction);
        add("bf16", "all | bf16", 0, Kind::kContraction);
    }
    return points;
}

std::vector<IndexPoint> index_points(std::uint64_t elements) {
    std::vector<IndexPoint> points;
    std::vector<double> densities;
    for (int step = 0; step <= 15; ++step) densities.push_back(std::pow(10, -4 + 0.25 * step));
    densities.insert(densities.end(), {0.7, 0.8, 0.9});
    for (const StageRow& stage : stage_table()) {
        if (stage.role != "index coder") continue;
        for (const double density : densities) {
            const std::string codec = "topk(" + std::to_string(density) + ") | f32 | " + std::string(stage.name);
            const WireParts parts = wire_parts(run_trial(codec, elements, kSeed).payloads(), elements);
            const auto kept = static_cast<double>(parts.elements);
            points.push_back({std::string(stage.name), kept / static_cast<double>(elements),
                              8.0 * static_cast<double>(parts.header_bytes + parts.index_bytes) / kept,
                              index_entropy(kept / static_cast<double>(elements))});
        }
    }
    return points;
}

std::vector<ScalePoint> scale_points(std::uint64_t elements) {
    std::vector<ScalePoint> points;
    for (const std::string quantizer : {"pow2(bits=4)", "pow2(bits=4, scope=tensor)", "sign", "dither(levels=7)"})
        for (const double density : {1e-1, 1e-2, 1e-3, 1e-4}) {
            const std::string codec = "topk(" + std::to_string(density) + ") | " + quantizer;
            const WireParts parts = wire_parts(run_trial(codec, elements, kSeed).payloads(), elements);
            points.push_back({quantizer, density,
                              8.0 * static_cast<double>(parts.scale_bytes) / static_cast<double>(parts.elements)});
        }
    return points;
}

}  // namespace gradsieve::codec

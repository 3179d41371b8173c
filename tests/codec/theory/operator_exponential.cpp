#include "operator_exponential.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::codec {
namespace {

/// Of magnitudes between two levels: reached at their harmonic mean.
double second_moment_between(double base) { return (base + 1) * (base + 1) / (4 * base); }
/// Of magnitudes below the lowest level.
double second_moment_below(const ExponentialTheory& rule, double count) {
    const double step = rule.lowest() * (rule.is_list ? kListEnlarged : 1);
    const double ratio = std::sqrt(count) * step;
    if (!rule.is_max_norm) return ratio >= 2 ? ratio : 1 + ratio * ratio / 4;
    return (1 + std::sqrt(1 + (rule.is_list ? count : count - 1) * step * step)) / 2;
}
double norm_of(Values values, const ExponentialTheory& rule) {
    const double largest = largest_magnitude(values);
    if (largest == 0) return 0;
    if (rule.levels == 0) return std::pow(rule.base, std::ceil(std::log(largest) / std::log(rule.base) - 1e-9));
    return rule.is_max_norm ? largest : std::sqrt(square_sum(values));
}
/// What the second moment of these values is known to be at most.
double factor_of(Values values, const ExponentialTheory& rule, double norm) {
    if (!rule.is_scaled) return 1;
    const auto count = static_cast<double>(values.size());
    const double step = rule.lowest() * norm * (rule.is_list ? kListEnlarged : 1);
    const double even = 1 + count * step * step / (4 * square_sum(values));
    const double below = second_moment_below(rule, count);
    return second_moment_between(rule.base) - 1 + (rule.is_max_norm ? std::min(below, even) : below);
}
double rounded_up_to_bf16(double value) {
    const int exponent = std::ilogb(value) - 7;
    return std::ldexp(std::ceil(std::ldexp(value, -exponent) * (1 - 1e-9)), exponent);
}
/// Of a magnitude in norms, above 0.
Moment rounded_level(double size, const ExponentialTheory& rule) {
    double low = 0;
    double high = rule.lowest();
    if (size >= high * (1 - 1e-7)) {  // levels stay so in fp32
        const double depth = std::max(0.0, std::ceil(-std::log(size) / std::log(rule.base) - 1e-7));
        low = std::pow(rule.base, -depth);
        high = depth == 0 ? low : low * rule.base;
    }
    size = std::clamp(size, low, high);
    if (rule.is_biased) {
        const double off_middle = size / ((low + high) / 2) - 1;
        const double nearer = off_middle >= -1e-9 ? high : low;
        // So near the middle, in fp32 it may be either.
        return std::fabs(off_middle) < 5e-7 ? Moment{nearer, 0, low, high} : Moment{nearer};
    }
    return {size, (size - low) * (high - size), low, high};
}

}  // namespace

double ExponentialTheory::lowest() const { return levels == 0 ? 0 : std::pow(base, 1 - levels); }

double exponential_second_moment(const ExponentialTheory& rule, double count) {
    return second_moment_between(rule.base) - 1 + second_moment_below(rule, count);
}

Moments exponential_rounding(Values values, const ExponentialTheory& rule) {
    const double norm = norm_of(values, rule);
    if (norm == 0) return Moments(values.size());
    const double z = factor_of(values, rule, norm);
    const double scale = rule.is_list ? rounded_up_to_bf16(norm / z) : norm / z;
    Moments moments;
    for (const float value : values) {
        const double size = std::fabs(double{value}) / (scale * z);
        const Moment level = size > 0 ? rounded_level(size, rule) : Moment{};
        const double factor = value < 0 ? -scale : scale;
        moments.push_back(
            {factor * level.mean, factor * factor * level.variance, factor * level.low, factor * level.high});
    }
    return moments;
}

NearestLevelWorst nearest_level_worst(const ExponentialTheory& rule, std::size_t count) {
    const double others = static_cast<double>(count) - 1;
    const double lowest = rule.lowest();
    const double middle = (1 + 1 / rule.base) / 2;
    std::vector<MidwayRounding> places = {{lowest / 2, lowest}, {lowest / 2, 0}};
    if (rule.levels > 1) places.insert(places.end(), {{middle, 1}, {middle, 1 / rule.base}});
    const auto square = [others](MidwayRounding at) { return 1 + others * at.size * at.size; };
    const auto sent = [others](MidwayRounding at) { return 1 + others * at.level * at.level; };
    const auto aligned = [others](MidwayRounding at) { return 1 + others * at.level * at.size; };
    const auto a = [&](MidwayRounding at) { return sent(at) / square(at); };
    const auto b = [&](MidwayRounding at) { return sent(at) / aligned(at); };
    const auto g = [&](MidwayRounding at) { return aligned(at) / square(at); };
    const auto error = [&](MidwayRounding at) { return others * std::pow(at.level - at.size, 2) / square(at); };
    NearestLevelWorst worst;
    worst.a = std::ranges::min(places, {}, a);
    worst.b = std::ranges::max(places, {}, b);
    worst.g = std::ranges::min(places, {}, g);
    worst.delta = std::ranges::max(places, {}, error);
    worst.classes = {a(worst.a), b(worst.b), g(worst.g), 1 / (1 - error(worst.delta)), 0};
    return worst;
}

}  // namespace gradsieve::codec

#include "operator_integer.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

/// A magnitude in steps: an fp32 product, as the format says.
double steps_of(double value, double scale) { return std::fabs(static_cast<float>(value) * static_cast<float>(scale)); }

/// To one of the two whole numbers over `scale` beside it, at random.
Moment at_random(double value, double scale) {
    const double exact = steps_of(value, scale);
    const double low = std::floor(exact);
    const double step = std::copysign(1 / scale, value);
    return {value, (exact - low) * (low + 1 - exact) * step * step, low * step, (low + 1) * step};
}
Moment to_nearest(double value, double scale) {
    return {std::copysign(std::round(steps_of(value, scale)) / scale, value)};
}

std::vector<Moment> each(std::span<const float> values, Moment (*round)(double, double), double scale) {
    std::vector<Moment> moments;
    for (const float value : values) moments.push_back(round(double{value}, scale));
    return moments;
}

}  // namespace

void add_integer(std::vector<OperatorTheory>& inout_rows) {
    for (const double scale : {0.5, 4.0, 1000.0}) {
        const std::string integer = "all | integer(scale=" + std::to_string(scale);
        const auto moments_of = [scale](Moment (*round)(double, double)) {
            return [round, scale](std::span<const float> values) { return each(values, round, scale); };
        };
        for (const std::string feedback : {"unscaled", "none"})
            inout_rows.push_back({integer + ", feedback=" + feedback + ")", true, moments_of(at_random), {}, {}});
        inout_rows.push_back({integer + ", mode=biased)", false, moments_of(to_nearest), {}, {}});
    }
}

}  // namespace gradsieve::codec

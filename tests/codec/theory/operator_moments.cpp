#include "operator_moments.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gradsieve::codec {

/// Of each element by itself.
template <typename Round>
static Moments each(Values values, Round round) {
    Moments moments;
    for (const float value : values) moments.push_back(round(double{value}));
    return moments;
}
double largest_magnitude(Values values) {
    double largest = 0;
    for (const float value : values) largest = std::max(largest, std::fabs(double{value}));
    return largest;
}
double square_sum(Values values) {
    double sum = 0;
    for (const float value : values) sum += double{value} * value;
    return sum;
}
static double magnitude_sum(Values values) {
    double sum = 0;
    for (const float value : values) sum += std::fabs(double{value});
    return sum;
}

// ---- deterministic quantizers ----

Moments exactly(Values values) {
    return each(values, [](double value) { return Moment{value}; });
}
/// To the nearest number with `bits` mantissa bits, ties to even; below 2^least_exponent they are as far apart as
/// there.
Moments nearest_float(Values values, int bits, int least_exponent) {
    return each(values, [bits, least_exponent](double value) {
        if (value == 0) return Moment{};
        const int exponent = std::max(std::ilogb(value), least_exponent) - bits;
        return Moment{std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent)};
    });
}
Moments nearest_power(Values values, int octaves) {
    const double largest = largest_magnitude(values);
    const int top = largest > 0 ? std::ilogb(largest) : 0;
    return each(values, [top, octaves](double value) {
        if (value == 0) return Moment{};
        const double low = std::ldexp(1.0, std::ilogb(value));
        const double near = std::fabs(value) >= 1.5 * low ? 2 * low : low;
        const double rounded = std::min(near, std::ldexp(1.0, top));
        return Moment{rounded < std::ldexp(1.0, top - octaves) ? 0.0 : std::copysign(rounded, value)};
    });
}
Moments signs_times(Values values, double scale) {
    return each(values, [scale](double value) { return Moment{value < 0 ? -scale : scale}; });
}
Moments scaled_signs(Values values) {
    return signs_times(values, magnitude_sum(values) / static_cast<double>(values.size()));
}
Moments scaled_signs_of_list(Values values) {
    if (values.empty()) return {};
    const auto mean = static_cast<float>(magnitude_sum(values) / static_cast<double>(values.size()));
    return signs_times(values, nearest_float(constant_vector(1, mean), 7)[0].mean);
}

/// The mean of each side of zero, zero being on the positive one. `bits`: mantissa bits that a mean has.
static Moments side_means(Values values, int bits) {
    double sums[2] = {};
    double counts[2] = {};
    for (const float value : values) {
        const unsigned side = value < 0 ? 1 : 0;
        sums[side] += value;
        counts[side] += 1;
    }
    return each(values, [&](double value) {
        const unsigned side = value < 0 ? 1 : 0;
        const auto mean = static_cast<float>(sums[side] / counts[side]);
        return nearest_float(constant_vector(1, mean), bits)[0];
    });
}
Moments two_means(Values values) { return side_means(values, 23); }
Moments two_means_of_list(Values values) { return side_means(values, 7); }

// ---- random quantizers ----

/// Up or down without bias to one of two neighbors.
static Moment unbiased(double magnitude, double low, double high) {
    return {magnitude, (magnitude - low) * (high - magnitude), low, high};
}
static Moment times(const Moment& moment, double factor) {
    return {factor * moment.mean, factor * factor * moment.variance, factor * moment.low, factor * moment.high};
}
Moments natural_rounding(Values values, double factor) {
    return each(values, [factor](double value) {
        const double scaled = std::fabs(value) * factor;
        if (scaled < 0x1p-108) return Moment{};
        const double low = std::ldexp(1.0, std::ilogb(scaled));
        return times(unbiased(scaled, low, 2 * low), value < 0 ? -1 : 1);
    });
}
double dither_second_moment(const DitherTheory& rule, double count) {
    if (rule.is_max_norm) return (1 + std::sqrt(1 + (count - 1) / (rule.levels * rule.levels))) / 2;
    const double ratio = std::sqrt(count) / rule.levels;
    return ratio >= 2 ? ratio : 1 + ratio * ratio / 4;
}
Moments dithering(Values values, const DitherTheory& rule) {
    const double norm = rule.is_max_norm ? largest_magnitude(values) : std::sqrt(square_sum(values));
    const double unit = norm / rule.levels;
    if (unit == 0) return Moments(values.size());
    double z = 1;
    if (rule.is_scaled) {
        z = dither_second_moment(rule, static_cast<double>(values.size()));
        const double even = 1 + static_cast<double>(values.size()) * unit * unit / (4 * square_sum(values));
        if (rule.is_max_norm) z = std::min(z, even);
    }
    return each(values, [unit, z](double value) {
        const double level = std::fabs(value) / unit;
        const double low = std::floor(level + 1e-9);  // whole levels stay so in fp32
        return times(unbiased(std::max(level, low), low, low + 1), (value < 0 ? -unit : unit) / z);
    });
}

double list_dither_second_moment(int levels, double count) {
    const double ratio = kListEnlarged / levels;
    return (1 + std::sqrt(1 + count * ratio * ratio)) / 2;
}
Moments dithering_of_list(Values values, int levels, bool is_scaled) {
    const double unit = largest_magnitude(values) / levels;
    if (unit == 0) return Moments(values.size());
    const auto count = static_cast<double>(values.size());
    const double even = 1 + count * std::pow(unit * kListEnlarged, 2) / (4 * square_sum(values));
    const double z = is_scaled ? std::min(list_dither_second_moment(levels, count), even) : 1;
    const int exponent = std::ilogb(unit / z) - 7;
    const double scale = std::ldexp(std::ceil(std::ldexp(unit / z, -exponent) * (1 - 1e-9)), exponent);
    return each(values, [scale, z](double value) {
        const double level = std::fabs(value) / (z * scale);
        const double low = std::floor(level + 1e-7);
        return times(unbiased(std::max(level, low), low, low + 1), value < 0 ? -scale : scale);
    });
}

double minmax_second_moment(const MinMaxTheory& rule, std::size_t count) {
    const double steps = std::ldexp(1, rule.bits) - 1;
    return count < 2 ? 1 : 1 + static_cast<double>(count - 2) / (2 * steps * steps);
}
Moments between_ends(Values values, const MinMaxTheory& rule) {
    const auto [least, largest] = std::ranges::minmax(values);
    const double unit = (static_cast<double>(largest) - least) / (std::ldexp(1, rule.bits) - 1);
    double z = 1;
    if (rule.is_scaled && unit > 0 && values.size() > 2) {
        // ||x||^2 of magnitudes that are cut off to whole 2048ths of the largest.
        const double biggest = largest_magnitude(values);
        const auto to_whole = static_cast<float>(2048 / biggest);
        double squares = 0;
        for (const float value : values)
            squares += std::pow(std::floor(std::fabs(value) * to_whole) * biggest / 2048, 2);
        z = std::min(minmax_second_moment(rule, values.size()),
                     1 + static_cast<double>(values.size() - 2) * unit * unit / (4 * squares));
    }
    return each(values, [&](double value) {
        Moment moment{value / z};
        if (unit == 0) return moment;
        const double level = (value - least) / unit;
        const double low = std::floor(level + 1e-6);  // whole levels stay so in fp32
        Moment above = unbiased(std::max(level, low), low, low + 1);
        moment.variance = above.variance * std::pow(unit / z, 2);
        moment.low = (least + above.low * unit) / z;
        moment.high = (least + above.high * unit) / z;
        return moment;
    });
}

// ---- selectors ----

std::size_t kept_of(double ratio, std::size_t count) {
    return std::max<std::size_t>(1, static_cast<std::size_t>(std::floor(ratio * static_cast<double>(count))));
}
/// A quantizer of what is `kept`, which ascends; the rest is not sent.
static Moments scattered(Values values, const std::vector<std::size_t>& kept, const Quantize& quantize) {
    std::vector<float> list;
    for (const std::size_t element : kept) list.push_back(values[element]);
    const Moments coded = quantize(Values(list));
    Moments moments(values.size());
    for (std::size_t entry = 0; entry < kept.size(); ++entry) moments[kept[entry]] = coded[entry];
    return moments;
}
/// The numbers of the elements that largest_then sends, ascending.
static std::vector<std::size_t> largest_of(Values values, double ratio) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, [values](std::size_t left, std::size_t right) {
        return std::fabs(values[left]) > std::fabs(values[right]);
    });
    order.resize(kept_of(ratio, values.size()));
    std::erase_if(order, [values](std::size_t element) { return values[element] == 0; });
    std::ranges::sort(order);
    return order;
}
Moments largest_then(Values values, double ratio, const Quantize& quantize) {
    return scattered(values, largest_of(values, ratio), quantize);
}
Moments largest_of_blocks_then(Values values, double ratio, std::size_t block, const Quantize& quantize) {
    std::vector<std::size_t> kept;
    for (std::size_t first = 0; first < values.size(); first += block)
        for (const std::size_t element :
             largest_of(values.subspan(first, std::min(block, values.size() - first)), ratio))
            kept.push_back(first + element);
    return scattered(values, kept, quantize);
}
Block worst_block(double ratio, std::size_t block, std::size_t count) {
    Block worst;
    for (std::size_t first = 0; first < count; first += block) {
        const std::size_t size = std::min(block, count - first);
        const double share = static_cast<double>(kept_of(ratio, size)) / static_cast<double>(size);
        if (first == 0 || share < worst.share) worst = {first, size, share};
    }
    return worst;
}
Moments above_then(Values values, double tau, const Quantize& quantize) {
    std::vector<std::size_t> kept;
    for (std::size_t element = 0; element < values.size(); ++element)
        if (std::fabs(values[element]) > tau) kept.push_back(element);
    return scattered(values, kept, quantize);
}

}  // namespace gradsieve::codec

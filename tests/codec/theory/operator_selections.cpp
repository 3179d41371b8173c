#include "operator_selections.hpp"

#include "operator_moments.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gradsieve::codec {
namespace {

using Probability = std::function<double(Values, std::size_t)>;  ///< of element i of a vector
using Share = std::function<double(std::size_t)>;                ///< of any element of n

/// What a deterministic quantizer makes of the vector, sent with some probability, times `factor(n)`.
std::function<std::vector<Moment>(Values)> sometimes(Probability probability, Quantize quantize, bool is_raised) {
    return [probability = std::move(probability), quantize = std::move(quantize), is_raised](Values values) {
        std::vector<Moment> moments = quantize(values);
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double p = probability(values, i);
            const double sent = moments[i].mean / (is_raised ? p : 1);
            moments[i] = {p * sent, p * (1 - p) * sent * sent, 0, sent};
        }
        return moments;
    };
}

MakeVector any_vector() {
    return [](std::size_t count) { return constant_vector(count, 2.5F); };
}
Extremal everywhere() { return {any_vector(), any_vector(), any_vector(), any_vector()}; }

void add_share(std::vector<OperatorTheory>& rows, const std::string& name, const Share& share, bool may_drop) {
    const Probability probability = [share](Values values, std::size_t /*element*/) { return share(values.size()); };
    const auto kept = [share](std::size_t count) {
        const double p = share(count);
        return Classes{p, 1, p, 1 / p, 0};
    };
    rows.push_back({name + ")", true, sometimes(probability, exactly, false), kept, everywhere()});
    const double step = std::ldexp(1.0, -7);
    rows.push_back(
        {name + ") | bf16",
         true,
         sometimes(
             probability, [](Values values) { return nearest_float(values, 7, -126); }, false),
         [share, step](std::size_t count) {
             const double p = share(count);
             const double low = 1 / (1 + step / 2);
             return Classes{p * low * low, (1 + step) * low, p * low, 1 / (p * (1 - std::pow(step / 2 * low, 2))), 0};
         },
         {}});
    if (!may_drop) return;
    rows.push_back({name + ", feedback=none)", true, sometimes(probability, exactly, true),
                    [share](std::size_t count) {
                        const double z = 1 / share(count);
                        return Classes{z, z, 1, z < 2 ? 1 / (2 - z) : INFINITY, z};
                    },
                    everywhere()});
}

/// An element's share of the sum of magnitudes, drawn `ratio` times their number, at least once.
Probability drawn_by_magnitude(double ratio) {
    return [ratio](Values values, std::size_t element) {
        double sum = 0;
        for (const float value : values) sum += std::fabs(value);
        const double draws = std::max(1.0, std::floor(ratio * static_cast<double>(values.size())));
        return sum == 0 ? 0 : 1 - std::pow(1 - std::fabs(values[element]) / sum, draws);
    };
}

}  // namespace

void add_random_selectors(std::vector<OperatorTheory>& inout_rows) {
    for (const double ratio : {0.1, 0.3, 1.0})
        add_share(
            inout_rows, "randk(" + std::to_string(ratio),
            [ratio](std::size_t count) {
                return static_cast<double>(kept_of(ratio, count)) / static_cast<double>(count);
            },
            true);
    for (const double p : {0.1, 0.75})
        add_share(
            inout_rows, "bernoulli(" + std::to_string(p), [p](std::size_t /*count*/) { return p; }, true);
    // Vectors of these suites are one tile, whose probability is the first one.
    add_share(
        inout_rows, "biased_random(0.3, 0.01", [](std::size_t /*count*/) { return 0.3; }, false);
    const auto one_draw = [](std::size_t count) {
        const double share = 1 / static_cast<double>(count);
        return Classes{share, 1, share, 1 / share, 0};
    };
    inout_rows.push_back({"adaptive_random(0.0001)", true, sometimes(drawn_by_magnitude(0.0001), exactly, false),
                          one_draw, everywhere()});
    inout_rows.push_back({"adaptive_random(0.1)", true, sometimes(drawn_by_magnitude(0.1), exactly, false), {}, {}});
}

}  // namespace gradsieve::codec

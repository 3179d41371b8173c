#include "operator_moments.hpp"
#include "tests/codec/payload_cases.hpp"

#include <cmath>

namespace gradsieve::codec {

Energies energies(std::span<const float> values, std::span<const Moment> moments) {
    Energies sums;
    const double square = square_sum(values);
    for (std::size_t element = 0; element < values.size(); ++element) {
        const Moment& moment = moments[element];
        sums.sent += (moment.variance + moment.mean * moment.mean) / square;
        sums.aligned += moment.mean * values[element] / square;
        sums.error += (moment.variance + std::pow(moment.mean - values[element], 2)) / square;
        sums.mean_sent += moment.mean * moment.mean / square;
    }
    return sums;
}

double error_variance(std::span<const float> values, std::span<const Moment> moments) {
    double sum = 0;
    for (std::size_t element = 0; element < values.size(); ++element) {
        const Moment& moment = moments[element];
        // p (1 - p) is variance / step^2; the errors of both values differ by step (low + high - 2 x).
        sum += moment.variance * std::pow(moment.low + moment.high - 2 * double{values[element]}, 2);
    }
    return sum;
}

std::vector<float> in_range(std::vector<float> values) {
    const double largest = largest_magnitude(values);
    if (largest == 0) return values;
    for (float& value : values) value = std::ldexp(value, 2 - std::ilogb(largest));
    return values;
}
std::vector<std::vector<float>> vectors_for(const OperatorTheory& row, std::size_t count) {
    using test::Shape;
    std::vector<std::vector<float>> vectors;
    for (const Shape shape :
         {Shape::kGaussian, Shape::kHeavyTailed, Shape::kConstant, Shape::kOneHot, Shape::kAlternating})
        vectors.push_back(in_range(test::make_values(shape, count, count)));
    for (const MakeVector& make : {row.extremal.a, row.extremal.b, row.extremal.g, row.extremal.delta})
        if (make) vectors.push_back(make(count));
    return vectors;
}

std::vector<float> constant_vector(std::size_t count, float value) { return std::vector<float>(count, value); }
std::vector<float> one_hot_vector(std::size_t count) {
    std::vector<float> values(count, 0.0F);
    values[count / 2] = 3.0F;
    return values;
}

}  // namespace gradsieve::codec

#include "descent.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gradsieve::codec {

Quadratic::Quadratic(std::size_t dimensions, double condition, std::mt19937_64& random)
    : eigenvalues_(dimensions), normal_(dimensions) {
    for (std::size_t axis = 0; axis < dimensions; ++axis) {
        const double place = dimensions > 1 ? static_cast<double>(axis) / static_cast<double>(dimensions - 1) : 1;
        eigenvalues_[axis] = 1 + (condition - 1) * place;
    }
    std::ranges::shuffle(eigenvalues_, random);
    std::normal_distribution<double> normal;
    for (double& component : normal_) component = normal(random);
    const double length = std::sqrt(std::inner_product(normal_.begin(), normal_.end(), normal_.begin(), 0.0));
    for (double& component : normal_) component /= length;
}
std::vector<double> Quadratic::mirrored(std::span<const double> x) const {
    const double inner = std::inner_product(normal_.begin(), normal_.end(), x.begin(), 0.0);
    std::vector<double> image(x.begin(), x.end());
    for (std::size_t axis = 0; axis < image.size(); ++axis) image[axis] -= 2 * inner * normal_[axis];
    return image;
}
std::vector<double> Quadratic::gradient(std::span<const double> x) const {
    auto image = mirrored(x);
    for (std::size_t axis = 0; axis < image.size(); ++axis) image[axis] *= eigenvalues_[axis];
    return mirrored(image);
}
double Quadratic::value(std::span<const double> x) const {
    const auto slope = gradient(x);
    return std::inner_product(slope.begin(), slope.end(), x.begin(), 0.0) / 2;
}

Descent::Descent(const Pipeline& pipeline, std::size_t dimensions, double condition, std::size_t nodes,
                 Feedback feedback, std::uint64_t seed)
    : x_(dimensions, 1 / std::sqrt(static_cast<double>(dimensions))), random_(seed), feedback_(feedback) {
    for (std::size_t node = 0; node < nodes; ++node) {
        quadratics_.emplace_back(dimensions, condition, random_);
        loops_.emplace_back(pipeline, dimensions, 1, 0);
        loops_.back().set_random_seed(seed * 1000 + node);
    }
}
void Descent::step(double rate) {
    std::normal_distribution<double> normal;
    std::vector<double> mean(x_.size(), 0.0);
    for (std::size_t node = 0; node < loops_.size(); ++node) {
        EncodeLoop& loop = loops_[node];
        std::vector<float> gradient;
        for (const double slope : quadratics_[node].gradient(x_))
            gradient.push_back(static_cast<float>(slope + (noise_ > 0 ? noise_ * normal(random_) : 0)));
        if (rate_ > 0) loop.set_rescale(static_cast<float>(rate_ / rate));
        const auto decoded = decode_payloads(loop.step(gradient).chunks, x_.size());
        for (std::size_t axis = 0; axis < x_.size(); ++axis)
            mean[axis] += decoded[axis] / static_cast<double>(loops_.size());
        if (feedback_ == Feedback::kDropped) std::ranges::fill(loop.residual(), 0.0F);
    }
    for (std::size_t axis = 0; axis < x_.size(); ++axis) x_[axis] -= rate * mean[axis];
    rate_ = rate;
}
double Descent::value_at(std::span<const double> x) const {
    double sum = 0;
    for (const Quadratic& quadratic : quadratics_) sum += quadratic.value(x);
    return sum / static_cast<double>(quadratics_.size());
}
double Descent::virtual_square() {
    std::vector<double> place = x_;
    for (EncodeLoop& loop : loops_)
        for (std::size_t axis = 0; axis < place.size(); ++axis)
            place[axis] -= rate_ * loop.residual()[axis] / static_cast<double>(loops_.size());
    return std::inner_product(place.begin(), place.end(), place.begin(), 0.0);
}
double Descent::residual_square() {
    double sum = 0;
    for (EncodeLoop& loop : loops_)
        for (const float left : loop.residual()) sum += std::pow(rate_ * left, 2);
    return sum / static_cast<double>(loops_.size());
}

}  // namespace gradsieve::codec

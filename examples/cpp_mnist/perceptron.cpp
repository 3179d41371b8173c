#include "examples/cpp_mnist/perceptron.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace gradsieve::example {

namespace {

constexpr std::size_t kHidden = 64;
constexpr float kMomentum = 0.9F;

// out = weight * in + bias
void affine(const Perceptron::Weights& weight, const Perceptron::Weights& bias, std::span<const float> in,
            std::span<float> ret_out) {
    for (std::size_t row = 0; row < ret_out.size(); ++row) {
        const auto* values = weight.values.data() + row * in.size();
        float sum = bias.values[row];
        for (std::size_t column = 0; column < in.size(); ++column) sum += values[column] * in[column];
        ret_out[row] = sum;
    }
}

// The gradient of weight and bias, given that of the layer's output.
void add_outer(std::span<const float> delta, std::span<const float> in, std::span<float> weight,
               std::span<float> bias) {
    for (std::size_t row = 0; row < delta.size(); ++row) {
        bias[row] += delta[row];
        auto* values = weight.data() + row * in.size();
        for (std::size_t column = 0; column < in.size(); ++column) values[column] += delta[row] * in[column];
    }
}

}  // namespace

Perceptron::Perceptron(std::uint64_t seed) : hidden_(kHidden), scores_(kClasses) {
    std::mt19937_64 random(seed);
    const auto add = [&](const char* name, std::uint64_t outputs, std::uint64_t inputs) {
        std::normal_distribution<float> normal(0, std::sqrt(2.0F / static_cast<float>(inputs)));
        std::vector<float> values(outputs * inputs);
        std::ranges::generate(values, [&] { return normal(random); });
        parameters.push_back(
            {std::string(name) + ".weight", {outputs, inputs}, values, std::vector<float>(values.size())});
        parameters.push_back(
            {std::string(name) + ".bias", {outputs}, std::vector<float>(outputs), std::vector<float>(outputs)});
    };
    add("hidden", kHidden, kImagePixels);
    add("last", kClasses, kHidden);
}

void Perceptron::forward(std::span<const float> image) {
    affine(parameters[0], parameters[1], image, hidden_);
    for (auto& value : hidden_) value = std::max(value, 0.0F);
    affine(parameters[2], parameters[3], hidden_, scores_);
}

void Perceptron::backward(const Dataset& images, std::span<const std::size_t> chosen,
                          std::span<const std::span<float>> ret_gradients,
                          const std::function<void(std::size_t)>& on_ready) {
    for (const auto& gradient : ret_gradients) std::ranges::fill(gradient, 0.0F);
    std::vector<float> deltas(chosen.size() * kHidden);  // of the hidden layer, for each image
    for (std::size_t row = 0; row < chosen.size(); ++row) {
        forward(images.image(chosen[row]));
        const auto highest = *std::ranges::max_element(scores_);
        float sum = 0;
        for (auto& score : scores_) sum += score = std::exp(score - highest);
        for (auto& score : scores_) score /= sum * static_cast<float>(chosen.size());
        scores_[images.labels[chosen[row]]] -= 1.0F / static_cast<float>(chosen.size());
        add_outer(scores_, hidden_, ret_gradients[2], ret_gradients[3]);
        for (std::size_t unit = 0; unit < kHidden; ++unit)
            for (std::size_t score = 0; hidden_[unit] > 0 && score < kClasses; ++score)
                deltas[row * kHidden + unit] += scores_[score] * parameters[2].values[score * kHidden + unit];
    }
    on_ready(3);
    on_ready(2);
    for (std::size_t row = 0; row < chosen.size(); ++row)
        add_outer(std::span(deltas).subspan(row * kHidden, kHidden), images.image(chosen[row]), ret_gradients[0],
                  ret_gradients[1]);
    on_ready(1);
    on_ready(0);
}

std::size_t Perceptron::classify(std::span<const float> image) {
    forward(image);
    return static_cast<std::size_t>(std::ranges::max_element(scores_) - scores_.begin());
}

void Perceptron::update(std::size_t parameter, std::span<const float> gradient, float rate) {
    auto& [name, shape, values, velocity] = parameters[parameter];
    for (std::size_t element = 0; element < values.size(); ++element) {
        velocity[element] = kMomentum * velocity[element] + gradient[element];
        values[element] -= rate * velocity[element];
    }
}

}  // namespace gradsieve::example

#include "examples/fashion_mnist/network.hpp"

#include <cmath>
#include <random>

namespace gradsieve::example {

namespace {
using Map = Eigen::Map<Matrix>;
using ConstMap = Eigen::Map<const Matrix>;
using VectorMap = Eigen::Map<Eigen::RowVectorXf>;
using ConstVectorMap = Eigen::Map<const Eigen::RowVectorXf>;

ConstMap weight_of(const Parameter& parameter) {
    return {parameter.value.data(), static_cast<Eigen::Index>(parameter.shape[0]),
            static_cast<Eigen::Index>(parameter.shape[1])};
}
}  // namespace

Network::Network(const std::vector<std::size_t>& widths, std::uint64_t seed)
    : layers_(widths.size() - 1), activations_(widths.size()) {
    std::mt19937_64 random(seed);
    for (std::size_t layer = 0; layer < layers_; ++layer) {
        const auto inputs = widths[layer];
        const auto outputs = widths[layer + 1];
        std::normal_distribution<float> normal(0, std::sqrt(2.0F / static_cast<float>(inputs)));
        const auto name = "layer" + std::to_string(layer + 1);
        Parameter weight{name + ".weight",
                         {outputs, inputs},
                         std::vector<float>(outputs * inputs),
                         std::vector<float>(outputs * inputs)};
        for (auto& value : weight.value) value = normal(random);
        parameters_.push_back(std::move(weight));
        parameters_.push_back({name + ".bias", {outputs}, std::vector<float>(outputs), std::vector<float>(outputs)});
    }
}

void Network::forward(const Matrix& images) {
    activations_[0] = images;
    for (std::size_t layer = 0; layer < layers_; ++layer) {
        const auto& bias = parameters_[2 * layer + 1].value;
        auto& out = activations_[layer + 1];
        out.noalias() = activations_[layer] * weight_of(parameters_[2 * layer]).transpose();
        out.rowwise() += ConstVectorMap(bias.data(), static_cast<Eigen::Index>(bias.size()));
        if (layer + 1 < layers_) out = out.cwiseMax(0.0F);
    }
}

float Network::loss_and_gradients(const Matrix& images, std::span<const std::uint8_t> labels,
                                  std::span<const std::span<float>> ret_gradients) {
    forward(images);
    delta_ = activations_.back();
    const auto batch = static_cast<float>(labels.size());
    double loss = 0;
    for (Eigen::Index row = 0; row < delta_.rows(); ++row) {
        auto scores = delta_.row(row);
        scores.array() = (scores.array() - scores.maxCoeff()).exp();
        scores /= scores.sum();
        const auto label = static_cast<Eigen::Index>(labels[static_cast<std::size_t>(row)]);
        loss -= std::log(std::max(scores(label), 1e-12F));
        scores(label) -= 1.0F;
    }
    delta_ /= batch;
    for (std::size_t layer = layers_; layer-- > 0;) {
        const auto weight = weight_of(parameters_[2 * layer]);
        Map(ret_gradients[2 * layer].data(), weight.rows(), weight.cols()).noalias() =
            delta_.transpose() * activations_[layer];
        VectorMap(ret_gradients[2 * layer + 1].data(), weight.rows()) = delta_.colwise().sum();
        if (layer == 0) break;
        delta_before_.noalias() = delta_ * weight;
        delta_ = (activations_[layer].array() > 0.0F).select(delta_before_, 0.0F);
    }
    return static_cast<float>(loss / static_cast<double>(labels.size()));
}

std::size_t Network::count_correct(const Matrix& images, std::span<const std::uint8_t> labels) {
    forward(images);
    std::size_t correct = 0;
    for (Eigen::Index row = 0; row < images.rows(); ++row) {
        Eigen::Index best = 0;
        activations_.back().row(row).maxCoeff(&best);
        if (best == labels[static_cast<std::size_t>(row)]) ++correct;
    }
    return correct;
}

void Network::step(std::size_t parameter, std::span<const float> gradient, float rate, float momentum) {
    auto& target = parameters_[parameter];
    const auto size = static_cast<Eigen::Index>(target.value.size());
    VectorMap velocity(target.momentum.data(), size);
    velocity = momentum * velocity + ConstVectorMap(gradient.data(), size);
    VectorMap(target.value.data(), size) -= rate * velocity;
}

}  // namespace gradsieve::example

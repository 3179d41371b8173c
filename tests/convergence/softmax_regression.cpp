#include "softmax_regression.hpp"

#include "examples/fashion_mnist/dataset.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

namespace gradsieve::test {

SoftmaxRegression::SoftmaxRegression(const std::string& folder, const RegressionSize& size)
    : size_(size), pixels_(size.side * size.side) {
    constexpr std::size_t kSide = 28;
    const example::Dataset data = example::load_dataset(folder, size.file);
    if (data.size() < size.images) throw std::runtime_error("fewer images than are asked for");
    const std::size_t step = kSide / size.side;
    for (std::size_t number = 0; number < size.images; ++number) {
        const auto image = data.image(number);
        for (std::size_t row = 0; row < size.side; ++row)
            for (std::size_t column = 0; column < size.side; ++column) {
                float sum = 0;
                for (std::size_t pixel = 0; pixel < step * step; ++pixel)
                    sum += image[(row * step + pixel / step) * kSide + column * step + pixel % step];
                images_.push_back(sum / static_cast<float>(step * step));
            }
        images_.push_back(1.0F);
        labels_.push_back(data.labels[number]);
    }
}

/// Weights lie class by class for each pixel, so that the inner loops are over classes.
double SoftmaxRegression::probabilities(std::span<const float> weights, std::size_t image,
                                        float (&ret_classes)[kClasses]) const {
    const float* pixels = images_.data() + image * (pixels_ + 1);
    float scores[kClasses] = {};
    for (std::size_t pixel = 0; pixel <= pixels_; ++pixel)
        for (std::size_t label = 0; label < kClasses; ++label)
            scores[label] += pixels[pixel] * weights[pixel * kClasses + label];
    const float most = *std::max_element(scores, scores + kClasses);
    double sum = 0;
    for (const float score : scores) sum += std::exp(static_cast<double>(score - most));
    for (std::size_t label = 0; label < kClasses; ++label)
        ret_classes[label] = static_cast<float>(std::exp(static_cast<double>(scores[label] - most)) / sum);
    return std::log(sum) + static_cast<double>(most - scores[labels_[image]]);
}

void SoftmaxRegression::gradients(std::span<const float> weights, std::uint64_t step,
                                  std::vector<std::vector<std::vector<float>>>& ret_gradients) const {
    ret_gradients.resize(size_.nodes);
    const std::size_t shard = size_.images / size_.nodes;
    for (std::size_t node = 0; node < size_.nodes; ++node) {
        std::mt19937_64 random(1000 * step + node);
        ret_gradients[node].resize(size_.samples);
        for (auto& sample : ret_gradients[node]) {
            sample.assign(parameters(), 0.0F);
            for (std::size_t draw = 0; draw < size_.sample_images; ++draw) {
                const std::size_t image = node * shard + random() % shard;
                float slopes[kClasses];
                static_cast<void>(probabilities(weights, image, slopes));
                slopes[labels_[image]] -= 1.0F;
                for (float& slope : slopes) slope /= static_cast<float>(size_.sample_images);
                const float* pixels = images_.data() + image * (pixels_ + 1);
                for (std::size_t pixel = 0; pixel <= pixels_; ++pixel)
                    for (std::size_t label = 0; label < kClasses; ++label)
                        sample[pixel * kClasses + label] += pixels[pixel] * slopes[label];
            }
        }
    }
}

double SoftmaxRegression::loss(std::span<const float> weights) const {
    double sum = 0;
    float classes[kClasses];
    for (std::size_t image = 0; image < labels_.size(); ++image) sum += probabilities(weights, image, classes);
    return sum / static_cast<double>(labels_.size());
}

}  // namespace gradsieve::test

// Logistic regression with ten classes on Fashion-MNIST, cut into shards, one for each node: gradients of batches, and
// the loss over all images. Loaded once, then read-only; one thread at a time.
#pragma once

#include "base/id.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::test {

struct RegressionSize {
    const char* file = "t10k";  ///< "train" or "t10k"
    std::size_t images = 2000;  ///< the first ones of the file
    std::size_t side = 14;      ///< pixels; 28, or 14 of four pixels' mean each
    std::size_t nodes = 4;
    std::size_t samples = 4;        ///< a step's gradients on a node
    std::size_t sample_images = 8;  ///< of each
};

class SoftmaxRegression {
public:
    /// Throws std::runtime_error if the files are not there.
    SoftmaxRegression(const std::string& folder, const RegressionSize& size);
    [[nodiscard]] ElementCount parameters() const { return kClasses * (pixels_ + 1); }
    /// Each node's samples at these weights, mean gradients of images that step and seed draw from its shard.
    void gradients(std::span<const float> weights, std::uint64_t step,
                   std::vector<std::vector<std::vector<float>>>& ret_gradients) const;
    /// Mean cross-entropy over all images, in nats.
    [[nodiscard]] double loss(std::span<const float> weights) const;
    [[nodiscard]] const RegressionSize& size() const { return size_; }

private:
    static constexpr std::size_t kClasses = 10;
    /// Probabilities of the classes, and the loss.
    double probabilities(std::span<const float> weights, std::size_t image, float (&ret_classes)[kClasses]) const;

    RegressionSize size_;
    std::size_t pixels_;
    std::vector<float> images_;  ///< pixels_ each, and a one
    std::vector<std::uint8_t> labels_;
};

}  // namespace gradsieve::test

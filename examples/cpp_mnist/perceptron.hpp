// A perceptron with one hidden layer of ReLU and softmax cross-entropy, in plain loops. Owns its parameters; gradients
// go into memory of the caller's. One thread.
#pragma once

#include "examples/fashion_mnist/dataset.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::example {

class Perceptron {
public:
    struct Weights {
        std::string name;
        std::vector<std::uint64_t> shape;
        std::vector<float> values, velocity;
    };
    /// Weight and bias of the hidden layer, then of the last one. Weights are row-major, outputs x inputs.
    std::vector<Weights> parameters;

    explicit Perceptron(std::uint64_t seed);

    /// The mean gradient over the images `chosen` into `ret_gradients`, in the order of `parameters`; `on_ready(index)`
    /// is called for each as soon as it is whole, last layer first.
    void backward(const Dataset& images, std::span<const std::size_t> chosen,
                  std::span<const std::span<float>> ret_gradients, const std::function<void(std::size_t)>& on_ready);
    [[nodiscard]] std::size_t classify(std::span<const float> image);
    /// SGD with momentum 0.9.
    void update(std::size_t parameter, std::span<const float> gradient, float rate);

private:
    void forward(std::span<const float> image);

    std::vector<float> hidden_, scores_;  // of the image at hand
};

}  // namespace gradsieve::example

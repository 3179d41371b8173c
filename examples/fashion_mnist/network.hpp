// A multilayer perceptron with ReLU and softmax cross-entropy, its gradients written straight into memory given from
// outside (the slabs of libgradsieve). Plain Eigen; one thread.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::example {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// One parameter tensor: a weight of outputs x inputs, row-major, or a bias of outputs.
struct Parameter {
    std::string name;
    std::vector<std::uint64_t> shape;
    std::vector<float> value;
    std::vector<float> momentum;
};

class Network {
public:
    /// `widths`: inputs, hidden layers, classes. He initialization from `seed`.
    Network(const std::vector<std::size_t>& widths, std::uint64_t seed);

    [[nodiscard]] std::vector<Parameter>& parameters() noexcept { return parameters_; }
    [[nodiscard]] const std::vector<Parameter>& parameters() const noexcept { return parameters_; }

    /// Mean loss over the batch; `ret_gradients[p]` gets the mean gradient of parameter p, in order.
    float loss_and_gradients(const Matrix& images, std::span<const std::uint8_t> labels,
                             std::span<const std::span<float>> ret_gradients);
    [[nodiscard]] std::size_t count_correct(const Matrix& images, std::span<const std::uint8_t> labels);
    /// SGD with momentum: m = momentum * m + g; w -= rate * m.
    void step(std::size_t parameter, std::span<const float> gradient, float rate, float momentum);

private:
    void forward(const Matrix& images);

    std::size_t layers_;
    std::vector<Parameter> parameters_;  // weight, bias, weight, bias, ...
    std::vector<Matrix> activations_;    // [0] = input, [layer + 1] = output of layer
    Matrix delta_, delta_before_;
};

}  // namespace gradsieve::example

// Figure 2's form: what of a gradient's energy the five largest components hold while gradient descent goes on.
#include "codec/decoder.hpp"
#include "codec/encoder.hpp"
#include "examples/fashion_mnist/dataset.hpp"
#include "figure_data.hpp"

#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>

namespace gradsieve::codec {
namespace {

constexpr std::size_t kDimensions = 50;
constexpr std::size_t kKept = 5;
constexpr int kSteps = 200;
constexpr std::uint64_t kSeed = 12410;

using Vector = std::vector<double>;

/// ||C(x)||^2 / ||x||^2 of Top-5, by the encoder and the decoder.
double kept_energy(const Vector& gradient) {
    static const Pipeline pipeline =
        *parse_pipeline("topk(" + std::to_string(static_cast<double>(kKept) / kDimensions) + ") | f32");
    const std::vector<float> sample(gradient.begin(), gradient.end());
    std::vector<float> residual(kDimensions, 0.0F);
    std::vector<float> left(kDimensions, 0.0F);
    const float* const samples[] = {sample.data()};
    const float weights[] = {1.0F};
    EncodeRequest request;
    request.pipeline = &pipeline;
    request.elements = kDimensions;
    request.samples = samples;
    request.weights = weights;
    request.in.residual = residual.data();
    request.out.residual = left.data();
    EncodeWorkspace workspace;
    const auto result = encode_tensor(request, workspace);
    if (!result.is_ok() || result->kept_elements != kKept) throw std::runtime_error("Top-5 did not send 5 elements");
    std::vector<float> decoded(kDimensions, 0.0F);
    const ChunkView views[] = {{0, result->chunks.front().bytes.view()}};
    const Contribution contributions[] = {{1.0F, views}};
    if (const auto status = ResultTensor(1, decoded.data(), kDimensions).decode_average(1, contributions).status();
        !status.is_ok())
        throw std::runtime_error(status.to_string());
    double kept = 0;
    double whole = 0;
    for (std::size_t axis = 0; axis < kDimensions; ++axis) {
        kept += double{decoded[axis]} * decoded[axis];
        whole += gradient[axis] * gradient[axis];
    }
    return kept / whole;
}

/// Descent from `x` with the rate given, noting what Top-5 would keep of every gradient.
void descend(std::vector<EnergyPoint>& points, const std::string& problem, Vector x, double rate,
             const std::function<Vector(const Vector&)>& gradient_at) {
    for (int step = 0; step < kSteps; ++step) {
        const Vector gradient = gradient_at(x);
        points.push_back({problem, step, kept_energy(gradient), static_cast<double>(kKept) / kDimensions});
        for (std::size_t axis = 0; axis < kDimensions; ++axis) x[axis] -= rate * gradient[axis];
    }
}

/// 1/2 x' A x with A = M' M / rows, M of normal numbers, its columns scaled from 1 to `spread`.
void add_quadratic(std::vector<EnergyPoint>& points, const std::string& problem, std::size_t rows, double spread) {
    std::mt19937_64 random(kSeed);
    std::normal_distribution<double> normal;
    std::vector<Vector> matrix(rows, Vector(kDimensions));
    double trace = 0;
    for (Vector& row : matrix)
        for (std::size_t axis = 0; axis < kDimensions; ++axis) {
            row[axis] = normal(random) * std::pow(spread, static_cast<double>(axis) / (kDimensions - 1));
            trace += row[axis] * row[axis] / static_cast<double>(rows);
        }
    Vector start(kDimensions);
    for (double& component : start) component = normal(random);
    // No eigenvalue is above the trace, so that this is below 1/L.
    descend(points, problem, start, 1 / trace, [&](const Vector& x) {
        Vector gradient(kDimensions, 0.0);
        for (const Vector& row : matrix) {
            const double inner = std::inner_product(row.begin(), row.end(), x.begin(), 0.0);
            for (std::size_t axis = 0; axis < kDimensions; ++axis)
                gradient[axis] += inner * row[axis] / static_cast<double>(rows);
        }
        return gradient;
    });
}

constexpr std::size_t kSide = 28;
constexpr std::size_t kBlock = 4;  // pixels averaged on each side

/// Means of 4 x 4 pixels, and a 1 for the bias.
Vector reduced(std::span<const float> image) {
    Vector features(kDimensions, 0.0);
    for (std::size_t row = 0; row < kSide; ++row)
        for (std::size_t column = 0; column < kSide; ++column)
            features[row / kBlock * (kSide / kBlock) + column / kBlock] +=
                image[row * kSide + column] / double{kBlock * kBlock};
    features[kDimensions - 1] = 1;
    return features;
}
void add_logistic(std::vector<EnergyPoint>& points, const std::string& folder) {
    constexpr std::array<std::uint8_t, 2> kLabels = {2, 4};  // pullover and coat
    constexpr std::size_t kImages = 2000;
    const auto data = example::load_dataset(folder, "t10k");
    std::vector<Vector> images;
    Vector signs;
    for (std::size_t image = 0; image < data.size() && images.size() < kImages; ++image) {
        const std::uint8_t label = data.labels[image];
        if (label != kLabels[0] && label != kLabels[1]) continue;
        images.push_back(reduced(data.image(image)));
        signs.push_back(label == kLabels[0] ? 1 : -1);
    }
    double square = 0;
    for (const Vector& image : images)
        square +=
            std::inner_product(image.begin(), image.end(), image.begin(), 0.0) / static_cast<double>(images.size());
    const Vector start(kDimensions, 0.0);
    descend(points, "logistic regression, Fashion-MNIST", start, 4 / square, [&](const Vector& x) {
        Vector gradient(kDimensions, 0.0);
        for (std::size_t image = 0; image < images.size(); ++image) {
            const double margin = signs[image] * std::inner_product(x.begin(), x.end(), images[image].begin(), 0.0);
            const double pull = -signs[image] / (1 + std::exp(margin)) / static_cast<double>(images.size());
            for (std::size_t axis = 0; axis < kDimensions; ++axis) gradient[axis] += pull * images[image][axis];
        }
        return gradient;
    });
}

}  // namespace

std::vector<EnergyPoint> energy_points(const std::string& dataset_folder) {
    std::vector<EnergyPoint> points;
    add_quadratic(points, "quadratic, 500 samples", 500, 1);
    add_quadratic(points, "quadratic, 50 samples", 50, 1);
    add_quadratic(points, "quadratic, axes scaled 1 to 10", 500, 10);
    add_logistic(points, dataset_folder);
    return points;
}

}  // namespace gradsieve::codec

// A training program without any framework: a perceptron with one hidden layer on Fashion-MNIST, its gradients written
// into gradsieve's slabs in place. Start it once per rank, on hosts where gradsieved runs:
//
//     RANK=0 WORLD_SIZE=2 ./cpp_mnist & RANK=1 WORLD_SIZE=2 ./cpp_mnist [--steps N] [--codec CODEC] [--data FOLDER]
//
// Prints accuracy and a digest of the parameters, the same on every rank. Ends with 1 and one line if something fails.
#include "examples/cpp_mnist/perceptron.hpp"
#include "examples/fashion_mnist/dataset.hpp"

#include <gradsieve/gradsieve.hpp>

#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using gradsieve::example::Dataset;
using gradsieve::example::kImagePixels;
using gradsieve::example::Perceptron;

constexpr std::size_t kBatch = 64;  // images per rank and step
constexpr float kRate = 0.05F;
constexpr auto kTimeout = 60s;

template <typename T>
T must(gradsieve::Result<T> result, const char* doing) {
    if (!result.is_ok()) throw std::runtime_error(std::string(doing) + ": " + result.status().to_string());
    return std::move(*result);
}
void must(const gradsieve::Status& status, const char* doing) {
    if (!status.is_ok()) throw std::runtime_error(std::string(doing) + ": " + status.to_string());
}

// Rank 0's values on every rank, so that all begin with the same model.
void share(gradsieve::Job& job, gradsieve::Tensor& tensor, std::vector<float>& values) {
    std::copy(values.begin(), values.end(), tensor.gradient().begin());
    const auto shared = must(job.broadcast(tensor, 0, kTimeout), "broadcast");
    std::copy(shared.begin(), shared.end(), values.begin());
}

double accuracy_on(const Dataset& test, Perceptron& model) {
    std::size_t correct = 0;
    for (std::size_t image = 0; image < test.size(); ++image)
        correct += model.classify(test.image(image)) == test.labels[image];
    return static_cast<double>(correct) / static_cast<double>(test.size());
}

void train(std::map<std::string, std::string> options) {
    const auto folder = options.try_emplace("--data", "/usr/share/datasets/fashion-mnist").first->second;
    const auto steps = std::stoull(options.try_emplace("--steps", "400").first->second);
    const auto codec = options.try_emplace("--codec", "topk(0.01) | pow2(bits=4) | auto").first->second;
    const auto images = gradsieve::example::load_dataset(folder, "train");
    const auto test = gradsieve::example::load_dataset(folder, "t10k");

    auto job = must(gradsieve::Job::make({.name = "cpp_mnist", .codec = codec}), "make");  // ranks: the launcher's
    Perceptron model(1 + job.rank());  // another seed on each rank: `share` makes them equal
    std::vector<gradsieve::Tensor> tensors;
    for (const auto& parameter : model.parameters)
        tensors.push_back(must(job.add_tensor(parameter.name, std::span(parameter.shape)), "add_tensor"));
    must(job.start(kTimeout), "start");
    for (std::size_t index = 0; index < tensors.size(); ++index)
        share(job, tensors[index], model.parameters[index].values);

    std::vector<std::size_t> chosen(kBatch);
    for (std::uint64_t step = job.first_step(); step < job.first_step() + steps; ++step) {
        for (std::size_t row = 0; row < kBatch; ++row)
            chosen[row] = ((step * kBatch + row) * job.world_size() + job.rank()) % images.size();
        std::vector<std::span<float>> gradients;
        for (auto& tensor : tensors) gradients.push_back(tensor.gradient());
        // Called when a gradient is ready, last layer first: its exchange overlaps with the rest of the backward pass.
        model.backward(images, chosen, gradients,
                       [&](std::size_t index) { must(tensors[index].submit(step), "submit"); });
        for (std::size_t index = 0; index < tensors.size(); ++index)
            model.update(index, must(tensors[index].wait(kTimeout), "wait"), kRate);
    }
    std::uint64_t digest = 0;
    for (const auto& parameter : model.parameters)
        digest = digest * 31 + gradsieve::digest_of(std::as_bytes(std::span(parameter.values)));
    must(job.check_equal(digest, kTimeout), "check_equal");
    std::printf("rank %u: accuracy %.4f, parameters %016llx\n", job.rank(), accuracy_on(test, model),
                static_cast<unsigned long long>(digest));
    must(job.detach(kTimeout), "detach");
}

}  // namespace

int main(int argc, char** argv) {
    std::map<std::string, std::string> options;
    for (int index = 1; index + 1 < argc; index += 2) options[argv[index]] = argv[index + 1];
    try {
        train(std::move(options));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "cpp_mnist: %s\n", error.what());
        return 1;
    }
    return 0;
}

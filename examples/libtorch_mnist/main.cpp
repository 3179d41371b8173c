// A LibTorch training program: a small convolutional network on Fashion-MNIST, its gradients averaged by gradsieve.
// Start it once per rank, on hosts where gradsieved runs:
//
//     RANK=0 WORLD_SIZE=2 ./libtorch_mnist & RANK=1 WORLD_SIZE=2 ./libtorch_mnist [--steps N] [--codec CODEC]
//
// Prints accuracy and a digest of the parameters, the same on every rank. Ends with 1 and one line if something fails.
#include "examples/fashion_mnist/dataset.hpp"

#include <torch/torch.h>
#include <gradsieve/gradsieve.hpp>

#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kBatch = 32;  // images per rank and step
constexpr std::int64_t kTested = 2000;
constexpr double kRate = 0.05;
constexpr auto kTimeout = 60s;

template <typename T>
T must(gradsieve::Result<T> result, const char* doing) {
    if (!result.is_ok()) throw std::runtime_error(std::string(doing) + ": " + result.status().to_string());
    return std::move(*result);
}
void must(const gradsieve::Status& status, const char* doing) {
    if (!status.is_ok()) throw std::runtime_error(std::string(doing) + ": " + status.to_string());
}

// A model's parameters as tensors of a job. Each gradient is handed in by a hook while the backward pass goes on.
class Averaging {
public:
    Averaging(gradsieve::Job& job, torch::nn::Module& model) : job_(job) {
        for (auto& entry : model.named_parameters()) {
            const std::vector<std::uint64_t> shape(entry->sizes().begin(), entry->sizes().end());
            members_.push_back({entry.value(), must(job.add_tensor(entry.key(), std::span(shape)), "add_tensor")});
        }
        must(job.start(kTimeout), "start");
        step_ = job.first_step() - 1;
        torch::NoGradGuard no_grad;
        for (auto& member : members_) {
            slab(member).copy_(member.parameter);  // rank 0's parameters on every rank
            member.parameter.copy_(view(must(job.broadcast(member.tensor, 0, kTimeout), "broadcast"), member));
            member.parameter.register_hook([this, &member](const torch::Tensor& gradient) {
                slab(member).copy_(gradient);
                must(member.tensor.submit(step_), "submit");
            });
        }
    }
    Averaging(const Averaging&) = delete;
    Averaging& operator=(const Averaging&) = delete;

    // Before each backward pass, in which every parameter gets a gradient.
    void begin_step() { ++step_; }
    // After it: every `grad` is the mean over all ranks.
    void finish_step() {
        torch::NoGradGuard no_grad;
        for (auto& member : members_)
            member.parameter.mutable_grad().copy_(view(must(member.tensor.wait(kTimeout), "wait"), member));
    }
    [[nodiscard]] std::uint64_t digest() const {
        std::uint64_t digest = 0;
        for (const auto& member : members_) {
            const std::span values(member.parameter.data_ptr<float>(),
                                   static_cast<std::size_t>(member.parameter.numel()));
            digest = digest * 31 + gradsieve::digest_of(std::as_bytes(values));
        }
        return digest;
    }

private:
    struct Member {
        torch::Tensor parameter;
        gradsieve::Tensor tensor;
    };

    static torch::Tensor slab(Member& member) {
        return torch::from_blob(member.tensor.gradient().data(), member.parameter.sizes());
    }
    // Shared memory for reading, which from_blob takes as void*.
    static torch::Tensor view(std::span<const float> values, const Member& member) {
        return torch::from_blob(const_cast<float*>(values.data()), member.parameter.sizes());
    }

    gradsieve::Job& job_;
    std::vector<Member> members_;  // does not grow once hooks refer to its elements
    std::uint64_t step_ = 0;
};

torch::nn::Sequential make_network() {
    using namespace torch::nn;
    return Sequential(Conv2d(Conv2dOptions(1, 8, 3).stride(2).padding(1)), ReLU(),
                      Conv2d(Conv2dOptions(8, 16, 3).stride(2).padding(1)), ReLU(), Flatten(), Linear(16 * 7 * 7, 64),
                      ReLU(), Linear(64, static_cast<std::int64_t>(gradsieve::example::kClasses)));
}

struct Images {
    explicit Images(gradsieve::example::Dataset dataset)
        : pixels(torch::tensor(dataset.pixels).reshape({-1, 1, 28, 28})),
          labels(torch::tensor(std::vector<std::int64_t>(dataset.labels.begin(), dataset.labels.end()))) {}
    torch::Tensor pixels, labels;
};

void train(std::map<std::string, std::string> options) {
    const auto folder = options.try_emplace("--data", "/usr/share/datasets/fashion-mnist").first->second;
    const auto steps = std::stoll(options.try_emplace("--steps", "400").first->second);
    const auto codec = options.try_emplace("--codec", "topk(0.01) | pow2(bits=4) | auto").first->second;
    const Images images(gradsieve::example::load_dataset(folder, "train"));

    auto job = must(gradsieve::Job::make({.name = "libtorch_mnist", .codec = codec}), "make");
    const std::int64_t rank = job.rank(), world_size = job.world_size();
    torch::manual_seed(
        static_cast<std::uint64_t>(1 + rank));  // another model on each rank: the broadcast makes them equal
    auto model = make_network();
    Averaging averaging(job, *model);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(kRate).momentum(0.9));
    for (std::int64_t step = 0; step < steps; ++step) {
        const auto chosen = ((torch::arange(kBatch) + step * kBatch) * world_size + rank) % images.labels.size(0);
        optimizer.zero_grad();
        const auto loss = torch::nn::functional::cross_entropy(model->forward(images.pixels.index_select(0, chosen)),
                                                               images.labels.index_select(0, chosen));
        averaging.begin_step();
        loss.backward();
        averaging.finish_step();
        optimizer.step();
    }
    must(job.check_equal(averaging.digest(), kTimeout), "check_equal");
    torch::NoGradGuard no_grad;
    const Images test(gradsieve::example::load_dataset(folder, "t10k"));
    const auto guessed = model->forward(test.pixels.slice(0, 0, kTested)).argmax(1);
    std::printf("rank %u: accuracy %.4f, parameters %016llx\n", job.rank(),
                guessed.eq(test.labels.slice(0, 0, kTested)).to(torch::kFloat).mean().item<double>(),
                static_cast<unsigned long long>(averaging.digest()));
    must(job.detach(kTimeout), "detach");
}

}  // namespace

int main(int argc, char** argv) {
    std::map<std::string, std::string> options;
    for (int index = 1; index + 1 < argc; index += 2) options[argv[index]] = argv[index + 1];
    try {
        torch::set_num_threads(1);
        train(std::move(options));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "libtorch_mnist: %s\n", error.what());
        return 1;
    }
    return 0;
}

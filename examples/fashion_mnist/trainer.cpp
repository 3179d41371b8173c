// One training process of the demo: its share of Fashion-MNIST, two micro-batches a step as variance samples, gradients
// averaged by gradsieve, SGD with momentum on every rank alike. Prints one JSON object per line for whoever started it.
#include "examples/fashion_mnist/card.hpp"
#include "examples/fashion_mnist/dataset.hpp"
#include "examples/fashion_mnist/network.hpp"

#include <gradsieve/gradsieve.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>

namespace gradsieve::example {
namespace {

constexpr std::uint32_t kMicroBatches = 2;
constexpr float kMomentum = 0.9F;

struct Options {
    std::map<std::string, std::string> values;
    [[nodiscard]] std::string text(const std::string& key, const std::string& otherwise) const {
        const auto found = values.find(key);
        return found == values.end() ? otherwise : found->second;
    }
    [[nodiscard]] double number(const std::string& key, double otherwise) const {
        const auto found = values.find(key);
        return found == values.end() ? otherwise : std::stod(found->second);
    }
};

template <typename T>
T must(Result<T> result, const char* doing) {
    if (!result.is_ok()) throw std::runtime_error(std::string(doing) + ": " + result.status().to_string());
    return std::move(*result);
}
void must(const Status& status, const char* doing) {
    if (!status.is_ok()) throw std::runtime_error(std::string(doing) + ": " + status.to_string());
}

class Trainer {
public:
    explicit Trainer(const Options& options)
        : train_(load_dataset(options.text("data", "/usr/share/datasets/fashion-mnist"), "train")),
          test_(load_dataset(options.text("data", "/usr/share/datasets/fashion-mnist"), "t10k")),
          network_({kImagePixels, 256, 128, kClasses}, static_cast<std::uint64_t>(options.number("seed", 1))),
          seed_(static_cast<std::uint64_t>(options.number("seed", 1))),
          epochs_(static_cast<std::size_t>(options.number("epochs", 4))),
          micro_batch_(static_cast<std::size_t>(options.number("micro-batch", 32))),
          rate_(static_cast<float>(options.number("rate", 0.1))),
          is_on_card_(options.text("place", "host") == "card"),
          timeout_(static_cast<std::int64_t>(options.number("timeout-s", 120)) * 1000),
          job_(must(Job::make({.name = options.text("job", "fashion-mnist"),
                               .run_id = options.text("run", ""),
                               .rank = static_cast<std::int64_t>(options.number("rank", -1)),
                               .world_size = static_cast<std::int64_t>(options.number("world", -1)),
                               .codec = options.text("codec", ""),
                               .socket_path = options.text("socket", ""),
                               .check_every = static_cast<std::uint32_t>(options.number("check-every", 100))}),
                    "job")) {
        const auto limit = static_cast<std::size_t>(options.number("samples", 60000));
        images_ = std::min(limit, train_.size());
        for (const auto& parameter : network_.parameters())
            tensors_.push_back(must(job_.add_tensor(parameter.name, std::span<const std::uint64_t>(parameter.shape),
                                                    {.samples_max = kMicroBatches, .on_device = is_on_card_}),
                                    "tensor"));
        must(job_.start(timeout_), "start");
        if (is_on_card_)
            move_to_card();  // and every rank made the same parameters out of the same seed
        else
            share_initial_parameters();
        check_parameters(job_.first_step() - 1);
    }

    void run() {
        const auto per_step = micro_batch_ * kMicroBatches * job_.world_size();
        const auto steps_per_epoch = std::max<std::size_t>(1, images_ / per_step);
        const auto steps = steps_per_epoch * epochs_;
        std::vector<std::size_t> order(images_);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::mt19937_64 random(seed_ + 17);  // the same on every rank
        double accuracy = 0;
        for (std::size_t step = 0; step < steps; ++step) {
            const auto in_epoch = step % steps_per_epoch;
            if (in_epoch == 0) std::shuffle(order.begin(), order.end(), random);
            const auto first = in_epoch * per_step + job_.rank() * micro_batch_ * kMicroBatches;
            const auto loss =
                one_step(job_.first_step() + step, std::span(order).subspan(first, micro_batch_ * kMicroBatches),
                         rate_at(step, steps));
            check_parameters(job_.first_step() + step);
            if (job_.rank() == 0)
                std::printf("{\"event\":\"step\",\"step\":%zu,\"steps\":%zu,\"loss\":%.4f}\n", step + 1, steps,
                            static_cast<double>(loss));
            if (in_epoch + 1 == steps_per_epoch) accuracy = end_of_epoch(step / steps_per_epoch + 1);
            std::fflush(stdout);
        }
        std::printf("{\"event\":\"result\",\"rank\":%u,\"accuracy\":%.4f,\"hash\":\"%016llx\"}\n", job_.rank(),
                    accuracy, static_cast<unsigned long long>(parameter_hash()));
        std::fflush(stdout);
        must(job_.detach(timeout_), "detach");
    }

private:
    /// A short linear warm-up, then cosine to zero.
    [[nodiscard]] float rate_at(std::size_t step, std::size_t steps) const {
        const double warm_up = std::max(1.0, 0.1 * static_cast<double>(steps));
        const double position = static_cast<double>(step);
        if (position < warm_up) return rate_ * static_cast<float>((position + 1) / warm_up);
        return rate_ * static_cast<float>(0.5 * (1 + std::cos(std::numbers::pi * (position - warm_up) /
                                                              (static_cast<double>(steps) - warm_up))));
    }

    void share_initial_parameters() {
        for (std::size_t index = 0; index < tensors_.size(); ++index) {
            auto& value = network_.parameters()[index].value;
            std::copy(value.begin(), value.end(), tensors_[index].gradient().begin());
            const auto shared = must(job_.broadcast(tensors_[index], 0, timeout_), "broadcast");
            std::copy(shared.begin(), shared.end(), value.begin());
        }
    }

    void move_to_card() {
        std::vector<std::size_t> elements;
        for (const auto& parameter : network_.parameters()) elements.push_back(parameter.value.size());
        card_.emplace(elements, kMicroBatches);
        gradients_.resize(tensors_.size());
        for (std::size_t index = 0; index < tensors_.size(); ++index) {
            gradients_[index].assign(kMicroBatches, std::vector<float>(elements[index]));
            must(tensors_[index].bind_device(card_->buffer(index), timeout_), "bind_device");
        }
    }

    /// Where the network writes a micro-batch's gradient.
    [[nodiscard]] std::span<float> gradient(std::size_t index, std::uint32_t sample) {
        return card_ ? std::span<float>(gradients_[index][sample]) : tensors_[index].gradient(sample);
    }

    [[nodiscard]] std::span<const float> average(std::size_t index) {
        const auto result = must(tensors_[index].wait(timeout_), "wait");
        if (!card_) return result;
        card_->download(index, gradients_[index][0]);
        return gradients_[index][0];
    }

    /// All ranks prove that their parameters are equal, at the start and every `check-every` steps.
    void check_parameters(std::uint64_t step) {
        std::vector<std::span<const float>> values;
        for (const auto& parameter : network_.parameters()) values.emplace_back(parameter.value);
        must(job_.check_parameters(step, values, timeout_), "check_parameters");
    }

    float one_step(std::uint64_t step, std::span<const std::size_t> indices, float rate) {
        float loss = 0;
        std::vector<std::span<float>> slabs(tensors_.size());
        for (std::uint32_t sample = 0; sample < kMicroBatches; ++sample) {
            load(train_, indices.subspan(sample * micro_batch_, micro_batch_));
            for (std::size_t index = 0; index < tensors_.size(); ++index) slabs[index] = gradient(index, sample);
            loss += network_.loss_and_gradients(batch_, labels_, slabs) / kMicroBatches;
            for (std::size_t index = 0; card_ && index < tensors_.size(); ++index)
                card_->upload(index, sample, slabs[index]);
        }
        const std::vector<std::uint32_t> samples(kMicroBatches, static_cast<std::uint32_t>(micro_batch_));
        // last layer first, as backpropagation produces them
        for (std::size_t index = tensors_.size(); index-- > 0;)
            must(tensors_[index].submit(step, {.sample_count = kMicroBatches, .samples = samples}), "submit");
        for (std::size_t index = tensors_.size(); index-- > 0;) network_.step(index, average(index), rate, kMomentum);
        return loss;
    }

    void load(const Dataset& dataset, std::span<const std::size_t> indices) {
        batch_.resize(static_cast<Eigen::Index>(indices.size()), static_cast<Eigen::Index>(kImagePixels));
        labels_.resize(indices.size());
        for (std::size_t row = 0; row < indices.size(); ++row) {
            const auto image = dataset.image(indices[row]);
            std::copy(image.begin(), image.end(), batch_.data() + row * kImagePixels);
            labels_[row] = dataset.labels[indices[row]];
        }
    }

    /// Rank 0 measures the test accuracy.
    double end_of_epoch(std::size_t epoch) {
        if (job_.rank() != 0) return 0;
        std::size_t correct = 0;
        std::vector<std::size_t> indices;
        for (std::size_t first = 0; first < test_.size(); first += 500) {
            indices.resize(std::min<std::size_t>(500, test_.size() - first));
            std::iota(indices.begin(), indices.end(), first);
            load(test_, indices);
            correct += network_.count_correct(batch_, labels_);
        }
        const double accuracy = static_cast<double>(correct) / static_cast<double>(test_.size());
        std::printf("{\"event\":\"epoch\",\"epoch\":%zu,\"epochs\":%zu,\"accuracy\":%.4f}\n", epoch, epochs_, accuracy);
        return accuracy;
    }

    [[nodiscard]] std::uint64_t parameter_hash() const {
        std::uint64_t hash = 0;
        for (const auto& parameter : network_.parameters())
            hash = hash * 0x9E3779B97F4A7C15ULL + digest_of(std::as_bytes(std::span(parameter.value)));
        return hash;
    }

    Dataset train_, test_;
    Network network_;
    std::uint64_t seed_;
    std::size_t epochs_, micro_batch_, images_ = 0;
    float rate_;
    bool is_on_card_;
    Timeout timeout_;
    std::optional<Card> card_;  ///< outlives the job, which reads and writes it
    Job job_;
    std::vector<Tensor> tensors_;
    std::vector<std::vector<std::vector<float>>> gradients_;  ///< with a card: by tensor and micro-batch
    Matrix batch_;
    std::vector<std::uint8_t> labels_;
};

}  // namespace
}  // namespace gradsieve::example

int main(int argc, char** argv) {
    gradsieve::example::Options options;
    for (int index = 1; index + 1 < argc; index += 2) options.values[argv[index] + 2] = argv[index + 1];  // --key value
    try {
        gradsieve::example::Trainer(options).run();
    } catch (const std::exception& error) {
        std::printf("{\"event\":\"error\"}\n");
        std::fprintf(stderr, "gradsieve-demo-trainer: %s\n", error.what());
        return 1;
    }
    return 0;
}

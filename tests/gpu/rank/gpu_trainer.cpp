// A training process that keeps its GPU busy: kernels of about a millisecond back to back, and once in so many of them
// a gradient that is handed in while they go on. Prints one line of JSON: how long the kernels and the steps took, and
// how long the daemon. Without a socket it hands in nothing, which is what all else is compared with. Not a test by
// itself.
#include "tests/gpu/rank/busy_kernel.hpp"
#include "tests/gpu/rank/gpu_program.hpp"
#include "tests/gpu/rank/noise.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

namespace {

using gradsieve::gpu_check::compute;
using gradsieve::gpu_check::fail;
using gradsieve::gpu_check::must;
using gradsieve::test::RankOptions;
using Clock = std::chrono::steady_clock;

constexpr auto kTimeout = gradsieve::Timeout(60'000);
/// Steps at the start that do not count: contexts are made, thresholds found, clocks raised.
constexpr std::uint64_t kWarmUp = 2;

double milliseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Figures {
    std::vector<double> values{};

    void add(double value) { values.push_back(value); }
    [[nodiscard]] double mean() const {
        return values.empty() ? 0
                              : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    }
    [[nodiscard]] double at(double share) const {
        if (values.empty()) return 0;
        auto sorted = values;
        std::sort(sorted.begin(), sorted.end());
        return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
    }
};

class Trainer {
public:
    explicit Trainer(RankOptions options)
        : options_(std::move(options)),
          kernels_(options_.number("kernels", 100)),
          working_set_(options_.number("working-set", std::uint64_t{32} << 20U)),
          elements_(options_.number("elements", 25'600'000)) {
        const auto device = static_cast<int>(options_.number("device", 0));
        must(cudaSetDevice(device), "cudaSetDevice");
        must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
        int count = 0;
        must(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
        multiprocessors_ = static_cast<unsigned>(count);
        must(cudaMalloc(reinterpret_cast<void**>(&values_), working_set_ * sizeof(float)), "cudaMalloc");
        must(cudaMemset(values_, 0, working_set_ * sizeof(float)), "cudaMemset");
        must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // the stream does not wait for the default one
        must(cudaMalloc(reinterpret_cast<void**>(&gradient_), elements_ * sizeof(float)), "cudaMalloc");
        marks_.resize(kernels_ + 1);
        for (auto& mark : marks_) must(cudaEventCreate(&mark), "cudaEventCreate");
    }
    ~Trainer() {
        for (auto* mark : marks_) static_cast<void>(cudaEventDestroy(mark));
        static_cast<void>(cudaFree(gradient_));
        static_cast<void>(cudaFree(values_));
        static_cast<void>(cudaStreamDestroy(stream_));
    }
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;

    /// Arithmetic for each value that makes a kernel last that long with nobody beside it.
    int print_rounds() {
        const double wanted = static_cast<double>(options_.number("kernel-us", 1'000)) / 1000;
        rounds_ = 1;
        double took = 0;
        // Doubles up to a kernel that lasts, then goes by proportion, what memory takes left aside.
        for (; rounds_ < (1U << 20U); rounds_ *= 2)
            if ((took = kernel_milliseconds()) > wanted / 2) break;
        const double before = took;
        const auto first = rounds_;
        rounds_ *= 2;
        const double per_round = std::max((kernel_milliseconds() - before) / first, 1e-9);
        const double rest = (wanted - before) / per_round;
        const auto rounds = std::max(1.0, static_cast<double>(first) + rest);
        std::printf("{\"event\":\"result\",\"rounds\":%llu}\n",
                    static_cast<unsigned long long>(std::llround(std::min(rounds, 1e6))));
        return 0;
    }

    int run() {
        rounds_ = static_cast<std::uint32_t>(options_.number("rounds", 1));
        if (!options_.text("socket").empty()) join();
        const auto first = job_ ? job_->first_step() : 1;
        const auto steps = options_.number("steps", 12);
        for (std::uint64_t step = first; step < first + steps; ++step) take_step(step, step >= first + kWarmUp);
        if (job_) leave();
        print();
        return 0;
    }

private:
    void join() {
        auto job = gradsieve::Job::make({.name = options_.text("job", "busy"),
                                         .run_id = "1",
                                         .rank = static_cast<std::int64_t>(options_.number("rank", 0)),
                                         .world_size = static_cast<std::int64_t>(options_.number("world", 1)),
                                         .codec = options_.text("codec"),
                                         .socket_path = options_.text("socket"),
                                         .require = "cuda-ipc"});
        if (!job.is_ok()) fail("make", job.status().to_string());
        job_.emplace(std::move(*job));
        const std::uint64_t shape[] = {elements_};
        auto tensor = job_->add_tensor("gradient", shape, {.on_device = true});
        if (!tensor.is_ok()) fail("add_tensor", tensor.status().to_string());
        tensor_.emplace(std::move(*tensor));
        must(tensor_->bind_device({.pointer = gradient_, .elements = elements_, .stream = stream_}, kTimeout), "bind");
        must(job_->start(kTimeout), "start");
    }

    /// The gradient of this step, then what the next one computes while the daemon averages it.
    void take_step(std::uint64_t step, bool counts) {
        const auto begin = Clock::now();
        const auto seed = step * 64 + options_.number("rank", 0);
        must(gradsieve::gpu_check::fill_with_noise(gradient_, elements_, seed, stream_), "noise");
        const auto handed_in = Clock::now();
        if (job_) must(tensor_->submit(step), "submit");
        must(cudaEventRecord(marks_[0], stream_), "cudaEventRecord");
        for (std::uint64_t kernel = 0; kernel < kernels_; ++kernel) {
            must(compute(values_, working_set_, rounds_, multiprocessors_, stream_), "compute");
            must(cudaEventRecord(marks_[kernel + 1], stream_), "cudaEventRecord");
        }
        if (job_) {
            const auto average = tensor_->wait(kTimeout);
            if (!average.is_ok()) fail("wait", average.status().to_string());
        }
        const double latency = milliseconds_since(handed_in);
        must(cudaStreamSynchronize(stream_), "synchronize");
        if (!counts) return;
        if (job_) latencies_.add(latency);
        steps_.add(milliseconds_since(begin));
        for (std::uint64_t kernel = 0; kernel < kernels_; ++kernel) {
            float took = 0;
            must(cudaEventElapsedTime(&took, marks_[kernel], marks_[kernel + 1]), "cudaEventElapsedTime");
            kernel_times_.add(static_cast<double>(took));
        }
    }

    [[nodiscard]] double kernel_milliseconds() {
        float took = 0;
        for (int turn = 0; turn < 3; ++turn) {  // the first ones raise the clock
            must(cudaEventRecord(marks_[0], stream_), "cudaEventRecord");
            must(compute(values_, working_set_, rounds_, multiprocessors_, stream_), "compute");
            must(cudaEventRecord(marks_[1], stream_), "cudaEventRecord");
            must(cudaStreamSynchronize(stream_), "synchronize");
            must(cudaEventElapsedTime(&took, marks_[0], marks_[1]), "cudaEventElapsedTime");
        }
        return static_cast<double>(took);
    }

    /// All ranks have the same average, and this one's arithmetic came out.
    void leave() {
        std::vector<float> average(elements_);
        must(cudaMemcpy(average.data(), gradient_, elements_ * sizeof(float), cudaMemcpyDeviceToHost), "copy back");
        must(job_->check_equal(gradsieve::digest_of(std::as_bytes(std::span(average))), kTimeout), "check_equal");
        must(job_->detach(kTimeout), "detach");
    }

    void print() {
        float value = 0;
        must(cudaMemcpy(&value, values_ + working_set_ - 1, sizeof(value), cudaMemcpyDeviceToHost), "copy back");
        float expected = 0;
        const auto rounds = options_.number("steps", 12) * kernels_ * rounds_;
        for (std::uint64_t round = 0; round < std::min<std::uint64_t>(rounds, 1000); ++round)
            expected = expected * 0.75F + 0.25F;
        if (value != expected) fail("compute", "the kernels' values are not what the host computes");
        std::printf(
            "{\"event\":\"result\",\"step_ms\":%.4f,\"kernel_ms\":%.4f,\"kernel_p90_ms\":%.4f,\"kernel_longest_ms\":%."
            "4f,"
            "\"latency_ms\":%.4f,\"latency_p90_ms\":%.4f}\n",
            steps_.mean(), kernel_times_.at(0.5), kernel_times_.at(0.9), kernel_times_.at(1), latencies_.at(0.5),
            latencies_.at(0.9));
    }

    const RankOptions options_;
    const std::uint64_t kernels_, working_set_, elements_;
    std::uint32_t rounds_ = 1;
    unsigned multiprocessors_ = 0;
    cudaStream_t stream_ = nullptr;
    float* values_ = nullptr;
    float* gradient_ = nullptr;
    std::vector<cudaEvent_t> marks_;  ///< before the first kernel, and behind each
    std::optional<gradsieve::Job> job_;
    std::optional<gradsieve::Tensor> tensor_;
    Figures steps_, kernel_times_, latencies_;
};

}  // namespace

/// gradsieve-gpu-trainer [--socket S --rank R --world W --job NAME --codec TEXT] [--device D] [--elements N]
/// [--kernels K] [--steps N] [--rounds R] [--working-set N]
/// or, to learn R for kernels of so long: gradsieve-gpu-trainer --find-rounds 1 [--kernel-us N]
int main(int argc, char** argv) {
    const RankOptions options(argc, argv);
    Trainer trainer(options);
    return options.number("find-rounds", 0) != 0 ? trainer.print_rounds() : trainer.run();
}

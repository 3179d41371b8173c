// How fast the products of lowrank are, beside a device-to-device copy of the same run: what is timed has the factors'
// way over PCIe in it, there and back. Counted are the bytes of the matrix alone: one look at it for M Q; two and a
// write for M^T P and what is left; one write of the average.
#include "codec/cuda/gpu_low_rank.hpp"
#include "codec/cuda/runtime.hpp"
#include "codec/pipeline.hpp"
#include "gpu_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace gradsieve::gpu_check {
namespace {

using codec::MatrixShape;
using codec::cuda::DeviceMemory;
using codec::cuda::GpuLowRank;
using codec::cuda::Stream;

struct SpeedCase {
    ElementCount rows, columns;
    std::uint32_t rank;
};
constexpr SpeedCase kCases[] = {{4096, 4096, 1},  {4096, 4096, 4}, {4096, 4096, 32}, {11'585, 11'585, 4},
                                {50'257, 768, 4}, {512, 4608, 2},  {256, 524'288, 4}};

class LowRankSpeed {
public:
    LowRankSpeed(const Options& options, Report& report) : options_(options), report_(report) {}

    void run() {
        ElementCount most = 0;
        for (const auto& one : kCases) most = std::max(most, one.rows * one.columns);
        auto stream = Stream::make(options_.device);
        auto matrix = DeviceMemory::make(options_.device, most * sizeof(float), "arrays of the test");
        auto result = DeviceMemory::make(options_.device, most * sizeof(float), "arrays of the test");
        const auto devices = codec::cuda::list_devices();
        if (!report_.expect_ok(stream.status(), "a stream") || !report_.expect_ok(matrix.status(), "device memory") ||
            !report_.expect_ok(result.status(), "device memory") || !report_.expect_ok(devices.status(), "devices"))
            return;
        stream_ = std::move(*stream);
        matrix_ = std::move(*matrix);
        result_ = std::move(*result);
        low_rank_.emplace(options_.device, (*devices)[static_cast<std::size_t>(options_.device)].multiprocessors);
        report_.expect_ok(codec::cuda::fill_bytes(stream_, matrix_.data(), matrix_.size(), 0), "clearing");
        if (!is_done(cudaEventCreate(&begin_)) || !is_done(cudaEventCreate(&end_))) return;
        copy_rate_ = measure_copy(most * sizeof(float));
        report_.figure(fmt::format("device-to-device copy, bytes read + written: {:.0f} GB/s", copy_rate_));
        for (const auto& one : kCases) measure(one);
    }

private:
    bool is_done(cudaError_t error) { return report_.expect_ok(codec::cuda::status_of(error, "timing"), "timing"); }
    cudaStream_t handle() const { return static_cast<cudaStream_t>(stream_.handle()); }

    /// Median milliseconds between events around it.
    float time(const std::function<Status()>& work) {
        std::vector<float> times;
        for (unsigned repetition = 0; repetition < options_.repetitions + 2; ++repetition) {
            float elapsed = 0;
            if (!is_done(cudaEventRecord(begin_, handle())) || !report_.expect_ok(work(), "work") ||
                !is_done(cudaEventRecord(end_, handle())) || !report_.expect_ok(stream_.synchronize(), "work") ||
                !is_done(cudaEventElapsedTime(&elapsed, begin_, end_)))
                return 1;
            if (repetition >= 2) times.push_back(elapsed);  // memory grows
        }
        std::ranges::sort(times);
        return times[times.size() / 2];
    }
    double measure_copy(ByteCount bytes) {
        const float milliseconds = time([&] {
            return codec::cuda::status_of(
                cudaMemcpyAsync(result_.data(), matrix_.data(), bytes, cudaMemcpyDeviceToDevice, handle()), "copying");
        });
        return 2.0 * static_cast<double>(bytes) / milliseconds / 1e6;
    }

    void measure(const SpeedCase& one) {
        const MatrixShape shape{one.rows * one.columns, one.rows, one.columns, one.rank};
        std::vector<float> left(shape.left_elements(), 0.5F), right(shape.right_elements(), 0.5F);
        std::uint64_t digest = 0;
        const codec::cuda::ProjectWork project{shape, matrix_.as<float>(), right, left};
        const float projecting = time([&] { return low_rank_->project(stream_, {&project, 1}); });
        codec::cuda::SettleWork settle;
        settle.shape = shape;
        settle.residual = matrix_.as<float>();
        settle.left = left;
        settle.ret_right = right;
        const float settling = time([&] { return low_rank_->settle(stream_, {&settle, 1}); });
        const codec::cuda::ExpandWork expand{shape, 1, 1, left, right, {{.data = result_.data()}}, &digest};
        const float expanding = time([&] { return low_rank_->expand(stream_, {&expand, 1}); });
        const auto of_copy = [&](double passes, float milliseconds) {
            return passes * 4.0 * static_cast<double>(shape.elements) / milliseconds / 1e6 / copy_rate_;
        };
        report_.figure(
            fmt::format("lowrank({}) of {} x {}: M Q {:.4f} ms, {:.2f} of the copy; M^T P and the rest {:.4f} ms, "
                        "{:.2f}; P Q^T {:.4f} ms, {:.2f}",
                        one.rank, one.rows, one.columns, projecting, of_copy(1, projecting), settling,
                        of_copy(3, settling), expanding, of_copy(1, expanding)));
    }

    const Options& options_;
    Report& report_;
    Stream stream_;
    DeviceMemory matrix_, result_;
    std::optional<GpuLowRank> low_rank_;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
    double copy_rate_ = 1;
};

}  // namespace

void measure_low_rank(const Options& options, Report& report) { LowRankSpeed(options, report).run(); }

}  // namespace gradsieve::gpu_check

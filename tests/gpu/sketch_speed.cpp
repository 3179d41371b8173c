// How fast the phases of sketch are on the card and back, beside a device-to-device copy of the same run: what is timed
// has the way of cells and values over PCIe in it, there and back; what hosts do with them in between is told by
// itself. Behind the encoder's pass, which is that of `all | f32` with a residual.
#include "codec/cuda/gpu_sketch.hpp"
#include "codec/cuda/runtime.hpp"
#include "codec/phase_memory.hpp"
#include "gpu_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>

namespace gradsieve::gpu_check {
namespace {

using codec::SketchMemory;
using codec::cuda::DeviceMemory;
using codec::cuda::GpuSketch;
using codec::cuda::Stream;

struct SpeedCase {
    const char* text;
    ElementCount elements;
};
constexpr SpeedCase kCases[] = {{"sketch(0.01)", 8'388'608},   {"sketch(0.01)", 25'600'000},
                                {"sketch(0.001)", 8'388'608},  {"sketch(0.01, 1)", 8'388'608},
                                {"sketch(0.01)", 103'000'000}, {"sketch(0.01)", 1'000'000}};

class SketchSpeed {
public:
    SketchSpeed(const Options& options, Report& report) : options_(options), report_(report) {}

    void run() {
        ElementCount most = 0;
        for (const auto& one : kCases) most = std::max(most, one.elements);
        auto stream = Stream::make(options_.device);
        auto tensor = DeviceMemory::make(options_.device, most * sizeof(float), "arrays of the test");
        auto result = DeviceMemory::make(options_.device, most * sizeof(float), "arrays of the test");
        const auto devices = codec::cuda::list_devices();
        if (!report_.expect_ok(stream.status(), "a stream") || !report_.expect_ok(tensor.status(), "device memory") ||
            !report_.expect_ok(result.status(), "device memory") || !report_.expect_ok(devices.status(), "devices"))
            return;
        stream_ = std::move(*stream);
        tensor_ = std::move(*tensor);
        result_ = std::move(*result);
        sketch_.emplace(options_.device, (*devices)[static_cast<std::size_t>(options_.device)].multiprocessors);
        if (!is_done(cudaEventCreate(&begin_)) || !is_done(cudaEventCreate(&end_))) return;
        const float copying = time([&] {
            return codec::cuda::status_of(cudaMemcpyAsync(result_.data(), tensor_.data(), most * sizeof(float),
                                                          cudaMemcpyDeviceToDevice, handle()),
                                          "copying");
        });
        report_.figure(fmt::format("device-to-device copy, bytes read + written: {:.0f} GB/s",
                                   8.0 * static_cast<double>(most) / copying / 1e6));
        for (const auto& one : kCases) measure(one);
    }

private:
    bool is_done(cudaError_t error) { return report_.expect_ok(codec::cuda::status_of(error, "timing"), "timing"); }
    cudaStream_t handle() const { return static_cast<cudaStream_t>(stream_.handle()); }

    /// Median milliseconds between events around it. `before`: not timed.
    float time(const std::function<Status()>& work, const std::function<Status()>& before = {}) {
        std::vector<float> times;
        for (unsigned repetition = 0; repetition < options_.repetitions + 2; ++repetition) {
            float elapsed = 0;
            if ((before && !report_.expect_ok(before(), "work")) || !is_done(cudaEventRecord(begin_, handle())) ||
                !report_.expect_ok(work(), "work") || !is_done(cudaEventRecord(end_, handle())) ||
                !report_.expect_ok(stream_.synchronize(), "work") ||
                !is_done(cudaEventElapsedTime(&elapsed, begin_, end_)))
                return 1;
            if (repetition >= 2) times.push_back(elapsed);  // memory grows
        }
        std::ranges::sort(times);
        return times[times.size() / 2];
    }

    void measure(const SpeedCase& one) {
        const auto pipeline = *codec::parse_pipeline(one.text);
        SketchMemory memory(codec::sketch_shape(pipeline, one.elements));
        memory.leaves_choice = true;
        std::mt19937_64 random(options_.seed);
        std::normal_distribution<float> normal;
        std::vector<float> period(1U << 20U);
        for (auto& value : period) value = normal(random);
        std::vector<float> values(one.elements);
        for (std::size_t at = 0; at < values.size(); ++at) values[at] = period[at % period.size()];
        const auto fill = [&] {
            return codec::cuda::status_of(cudaMemcpyAsync(tensor_.data(), values.data(), one.elements * sizeof(float),
                                                          cudaMemcpyHostToDevice, handle()),
                                          "filling");
        };
        if (!report_.expect_ok(fill(), "filling")) return;
        const codec::SketchDraws draws(memory.shape, 1, 2, 3);
        const codec::cuda::InsertWork insert{memory.shape, draws.key(), tensor_.as<float>(), memory.rows};
        const float inserting = time([&] { return sketch_->insert(stream_, {&insert, 1}); });
        const auto decoding = decode_first(memory);
        const codec::cuda::ChooseWork choose{memory.shape, draws.key(),   memory.row_mean, tensor_.as<float>(),
                                             nullptr,      memory.chosen, memory.values};
        const float choosing = time([&] { return sketch_->choose(stream_, {&choose, 1}); });
        std::uint64_t digest = 0;
        const codec::cuda::ScatterWork scatter{
            one.elements, 1, 1, memory.chosen, memory.values, {{.data = result_.data()}}, &digest};
        const float scattering = time([&] { return sketch_->scatter(stream_, {&scatter, 1}); });
        report_.figure(fmt::format(
            "{} of {} elements: cells {:.4f} ms, host's decoding of two nodes' {:.4f} ms, choice "
            "and values {:.4f} ms, result {:.4f} ms; on the card and back {:.4f} ms",
            one.text, one.elements, inserting, decoding, choosing, scattering, inserting + choosing + scattering));
    }

    /// Milliseconds, of two nodes' cells.
    double decode_first(SketchMemory& inout_memory) {
        codec::EncodeResult encoded;
        const codec::PayloadPool pool;
        codec::append_numbers(inout_memory.rows, pool, encoded);
        std::vector<codec::ChunkView> views;
        for (const auto& chunk : encoded.chunks) views.push_back({chunk.chunk_index, chunk.bytes.view()});
        const std::vector<codec::Contribution> contributions(2, {0.5F, views});
        std::vector<double> times;
        for (unsigned repetition = 0; repetition < options_.repetitions; ++repetition) {
            const auto begin = std::chrono::steady_clock::now();
            const auto decoded =
                inout_memory.decode_first({.step = 3, .tensor = 2, .selection_seed = 1}, contributions);
            times.push_back(
                std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
            if (!report_.expect_ok(decoded.status(), "decoding")) return 1;
        }
        std::ranges::sort(times);
        return times[times.size() / 2];
    }

    const Options& options_;
    Report& report_;
    Stream stream_;
    DeviceMemory tensor_, result_;
    std::optional<GpuSketch> sketch_;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace

void measure_sketch(const Options& options, Report& report) { SketchSpeed(options, report).run(); }

}  // namespace gradsieve::gpu_check

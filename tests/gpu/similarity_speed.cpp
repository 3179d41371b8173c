// How long a gradient's signature takes, from its plan's way in to the sums on the host, beside a device-to-device copy
// of the same run; and a step of a codec that may skip, sent in full and skipped, as its caller sees it.
#include "codec/cuda/gpu_reuse.hpp"
#include "codec/cuda/runtime.hpp"
#include "codec/sent_state.hpp"
#include "gpu_check.hpp"
#include "host_work.hpp"
#include "resnet50_sizes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

namespace gradsieve::gpu_check {
namespace {

using codec::cuda::DeviceMemory;
using codec::cuda::GpuDecoder;
using codec::cuda::GpuEncoder;
using codec::cuda::GpuEncodeRequest;

constexpr ElementCount kMost = 134'217'728;
constexpr ElementCount kMiddle = 25'600'000;
constexpr float kWeights[] = {0.5F, 0.5F};

class SimilaritySpeed {
public:
    SimilaritySpeed(const Options& options, Report& report) : options_(options), report_(report) {}

    void run() {
        auto memory = DeviceMemory::make(options_.device, 4 * kMost * sizeof(float), "arrays of the test");
        auto encoder = GpuEncoder::make(options_.device, {});
        auto decoder = GpuDecoder::make(options_.device);
        if (!report_.expect_ok(memory.status(), "device memory") ||
            !report_.expect_ok(encoder.status(), "an encoder") || !report_.expect_ok(decoder.status(), "a decoder"))
            return;
        memory_ = std::move(*memory);
        encoder_ = std::move(*encoder);
        decoder_ = std::move(*decoder);
        std::vector<float> values(kMost);
        fill_normal(values, options_.seed, 0.01F);
        for (std::size_t sample = 0; sample < 2; ++sample)
            if (!is_done(cudaMemcpy(array(sample), values.data(), kMost * sizeof(float), cudaMemcpyHostToDevice)))
                return;
        if (!is_done(cudaMemset(array(2), 0, 2 * kMost * sizeof(float))) || !is_done(cudaDeviceSynchronize())) return;
        copy_rate_ = 2.0 * kMost * sizeof(float) / 1e6 / time([&] {
                         return codec::cuda::status_of(
                             cudaMemcpyAsync(array(2), array(0), kMost * sizeof(float), cudaMemcpyDeviceToDevice,
                                             static_cast<cudaStream_t>(encoder_->stream().handle())),
                             "copying");
                     });
        report_.figure(fmt::format("device-to-device copy, bytes read + written: {:.0f} GB/s", copy_rate_));
        for (const std::size_t samples : {std::size_t{1}, std::size_t{2}})
            for (const ElementCount elements : {kMost, kMiddle, ElementCount{1'000'000}, ElementCount{1000}})
                sign(std::vector{elements}, samples, fmt::format("{} elements", elements));
        sign({kResNet50Sizes.begin(), kResNet50Sizes.end()}, 1, "161 tensors of a ResNet-50");
        reuse(kMiddle);
        reuse(1'000'000);
    }

private:
    bool is_done(cudaError_t error) { return report_.expect_ok(codec::cuda::status_of(error, "timing"), "timing"); }
    float* array(std::size_t number) const { return memory_.as<float>(number * kMost * sizeof(float)); }

    /// Median milliseconds until the caller goes on, and the device is done.
    double time(const std::function<Status()>& work) {
        std::vector<double> times;
        for (unsigned repetition = 0; repetition < options_.repetitions + 2; ++repetition) {
            const auto begin = std::chrono::steady_clock::now();
            if (!report_.expect_ok(work(), "work") || !report_.expect_ok(encoder_->stream().synchronize(), "work"))
                return 1;
            const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
            if (repetition >= 2) times.push_back(took.count());  // memory grows
        }
        std::ranges::sort(times);
        return times[times.size() / 2];
    }

    void sign(const std::vector<ElementCount>& sizes, std::size_t samples, const std::string& what) {
        std::vector<std::array<const float*, 2>> arrays;
        std::vector<GpuEncodeRequest> requests(sizes.size());
        ElementCount first = 0;
        for (std::size_t number = 0; number < sizes.size(); ++number) {
            arrays.push_back({array(0) + first, array(1) + first});
            first += sizes[number];
        }
        for (std::size_t number = 0; number < sizes.size(); ++number) {
            auto& request = requests[number].request;
            request.tensor = number;
            request.elements = sizes[number];
            request.samples = std::span(arrays[number]).first(samples);
            request.weights = std::span(kWeights).first(samples);
        }
        const double milliseconds = time([&] { return encoder_->sign(requests).status(); });
        const double bytes = static_cast<double>(first * samples * sizeof(float));
        report_.figure(fmt::format("signature, {}, {} samples: {:.4f} ms, {:.2f} of the copy", what, samples,
                                   milliseconds, bytes / 1e6 / milliseconds / copy_rate_));
    }

    /// Of a gradient that stays what it is.
    void reuse(ElementCount elements) {
        const auto pipeline = *codec::parse_pipeline("similarity(skip=0.5, most=100) | all | dither(levels=7)");
        std::vector<std::vector<float>> sent(3, std::vector<float>(codec::sent_floats(pipeline, elements)));
        const float* sample = array(0);
        const float weight = 1;
        codec::cuda::GpuReuseRequest asked;
        auto& request = asked.encode.request;
        request.pipeline = &pipeline;
        request.tensor = 3;
        request.step = 1;
        request.elements = elements;
        request.samples = {&sample, 1};
        request.weights = {&weight, 1};
        request.in = {.residual = array(1), .sent = sent[0].data()};
        request.out = {.residual = array(2), .sent = sent[1].data()};
        if (!is_done(cudaMemset(array(1), 0, elements * sizeof(float)))) return;
        codec::cuda::GpuReuseResult result;
        const auto step = [&] { return reuse_.encode(*encoder_, *decoder_, {&asked, 1}, {&result, 1}); };
        const double full = time(step);
        report_.expect(!result.reuse.is_reuse, "a first step is sent in full");
        request.in = request.out;
        request.out = {.residual = array(3), .sent = sent[2].data()};
        const double skipped = time(step);
        report_.expect(result.reuse.is_reuse, "the same gradient is skipped");
        report_.figure(
            fmt::format("all | dither(levels=7) that may skip, {} elements: in full {:.4f} ms, skipped {:.4f} ms",
                        elements, full, skipped));
    }

    const Options& options_;
    Report& report_;
    DeviceMemory memory_;
    std::unique_ptr<GpuEncoder> encoder_;
    std::unique_ptr<GpuDecoder> decoder_;
    codec::cuda::GpuReuse reuse_;
    double copy_rate_ = 1;
};

}  // namespace

void measure_similarity(const Options& options, Report& report) { SimilaritySpeed(options, report).run(); }

}  // namespace gradsieve::gpu_check

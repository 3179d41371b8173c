// How fast the encoder is, beside a device-to-device copy of the same run: events on its stream around `begin`, so the
// plan's way in and every kernel are in the time, up to the coded payload in device memory; a list's way to the host is
// part of its kernels. "Behind other work" is the card's time alone: the batch is planned and its kernels are launched
// while the card is busy, as in a step of several batches. "To the caller" adds all that is copied to the host. Inputs
// are far larger than the caches; the same generation is read each time, so that every repetition does the same work.
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/cuda/runtime.hpp"
#include "gpu_check.hpp"
#include "host_work.hpp"
#include "resnet50_sizes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace gradsieve::gpu_check {
namespace {

using codec::cuda::DeviceMemory;
using codec::cuda::GpuEncoder;
using codec::cuda::GpuEncodeRequest;

constexpr ElementCount kMost = 134'217'728;
constexpr ElementCount kMiddle = 25'600'000;
/// What a copy moves, and what is cleared in front of a batch so that it is planned before its turn comes: 0.3 ms.
constexpr ByteCount kTwoArraysBytes = 2 * kMost * sizeof(float);

struct Spread {
    float median = 0;
    float low = 0;   ///< a tenth is below
    float high = 0;  ///< a tenth is above
};

Spread spread_of(std::vector<float> values) {
    std::ranges::sort(values);
    const auto at = [&](std::size_t percent) { return values[(values.size() - 1) * percent / 100]; };
    return {at(50), at(10), at(90)};
}

/// One pipeline and what the issue counts for it.
struct Measured {
    const char* text;
    unsigned samples;
    bool has_moments;
    unsigned bytes_per_element;  ///< read and written besides the payload
};
constexpr Measured kMeasured[] = {
    {"variance(alpha=1.5) | pow2(bits=4) | auto", 1, false, 20},
    {"variance(alpha=1.5) | pow2(bits=4) | auto", 1, true, 24},
    {"variance(alpha=1.5) | pow2(bits=4) | auto", 2, false, 24},
    {"variance(alpha=1.5) | pow2(bits=4, scope=tensor) | auto", 1, false, 20},
    {"variance_hybrid(tau=2, alpha=1.2) | sign(scale=tau) | auto", 1, false, 20},
    {"topk(0.01) | pow2(bits=4) | auto", 1, false, 12},
    {"topk(0.01, gate=1) | pow2(bits=4) | auto", 1, false, 20},
    {"all | sign", 1, false, 12},
    {"all | dither(levels=7)", 1, false, 12},
    {"all | dither(levels=7, feedback=none)", 1, false, 4},
    {"all | bf16", 1, false, 12},
    {"all | f32", 1, false, 4},
    {"rotate | all | sign", 1, false, 12},
    {"rotate | all | dither(levels=7)", 1, false, 12},
    {"rotate | all | sign(scale=drive)", 1, false, 4},
    {"all | integer(100)", 1, false, 12},
    {"topk(0.01) | integer(100)", 1, false, 12},
    {"delta | topk(0.01) | pow2(bits=4) | auto", 1, false, 12},
    {"delta | all | sign", 1, false, 12},
    {"all | pow2(bits=4)", 1, false, 12},
};

class SpeedRun {
public:
    SpeedRun(const Options& options, Report& report) : options_(options), report_(report) {}

    void run() {
        if (!prepare()) return;
        measure_copy();
        for (const ElementCount elements : {kMost, kMiddle})
            for (const Measured& measured : kMeasured) {
                const std::array<ElementCount, 1> sizes = {elements};
                print(measured, time_batch(measured, sizes), elements, fmt::format("{} elements", elements));
            }
        ElementCount sum = 0;
        for (const std::uint32_t size : kResNet50Sizes) sum += size;
        const std::vector<ElementCount> sizes(kResNet50Sizes.begin(), kResNet50Sizes.end());
        const std::array<ElementCount, 1> whole = {sum};
        for (const Measured& measured : {kMeasured[0], kMeasured[5], kMeasured[7]}) {
            print(measured, time_batch(measured, sizes), sum, fmt::format("{} tensors of a ResNet-50", sizes.size()));
            print(measured, time_batch(measured, whole), sum, fmt::format("one of their sum, {}", sum));
            for (const ElementCount small : {1'000U, 100'000U}) {
                const std::vector<ElementCount> few(8, small);
                print(measured, time_batch(measured, few), 8 * small, fmt::format("8 tensors of {}", small));
            }
        }
    }

private:
    struct Outcome {
        Spread milliseconds;
        Spread card_milliseconds;  ///< the same of a batch that was planned before its turn came
        Spread host_milliseconds;  ///< begin to the end of finish
        ByteCount payload_bytes = 0;
        ElementCount kept = 0;
        bool is_valid = false;
    };

    bool is_done(cudaError_t error, const char* doing) {
        return report_.expect_ok(codec::cuda::status_of(error, doing), doing);
    }
    float* array(std::size_t number) const { return memory_.as<float>(number * kMost * sizeof(float)); }

    /// Arrays: sample 0, sample 1 or moment, r in, v in, r out, v out.
    bool prepare() {
        auto memory = DeviceMemory::make(options_.device, 6 * kMost * sizeof(float), "arrays of the test");
        auto encoder = GpuEncoder::make(options_.device, {});
        if (!report_.expect_ok(memory.status(), "device memory") || !report_.expect_ok(encoder.status(), "an encoder"))
            return false;
        memory_ = std::move(*memory);
        encoder_ = std::move(*encoder);
        std::vector<float> host(kMost);
        const auto upload = [&](std::size_t number) {
            return is_done(cudaMemcpy(array(number), host.data(), kMost * sizeof(float), cudaMemcpyHostToDevice),
                           "copying inputs");
        };
        fill_normal(host, options_.seed, 0.1F);
        if (!upload(0)) return false;
        fill_normal(host, options_.seed + 1, 1.0F);
        if (!upload(2)) return false;
        // r has a variance of 1.01 after the step; 1 % of the squares are above 6.635 times that.
        std::ranges::fill(host, kVariance);
        if (!upload(3)) return false;
        if (!is_done(cudaMemset(array(1), 0, kMost * sizeof(float)), "clearing")) return false;
        return is_done(cudaEventCreate(&begin_), "making an event") &&
               is_done(cudaEventCreate(&end_), "making an event");
    }

    float milliseconds() {
        float elapsed = 0;
        static_cast<void>(is_done(cudaEventElapsedTime(&elapsed, begin_, end_), "reading events"));
        return elapsed;
    }

    void measure_copy() {
        const auto stream = static_cast<cudaStream_t>(encoder_->stream().handle());
        std::vector<float> times;
        for (unsigned repetition = 0; repetition < options_.repetitions; ++repetition) {
            static_cast<void>(is_done(cudaEventRecord(begin_, stream), "recording"));
            static_cast<void>(is_done(
                cudaMemcpyAsync(array(4), array(0), kTwoArraysBytes, cudaMemcpyDeviceToDevice, stream), "copying"));
            static_cast<void>(is_done(cudaEventRecord(end_, stream), "recording"));
            if (!report_.expect_ok(encoder_->stream().synchronize(), "copying")) return;
            times.push_back(milliseconds());
        }
        const Spread spread = spread_of(times);
        copy_gigabytes_ = 2.0 * static_cast<double>(kTwoArraysBytes) / spread.median / 1e6;
        report_.figure(
            fmt::format("device-to-device copy, bytes read + written: {:.0f} GB/s ({:.3f} ms, {:.3f} to {:.3f})",
                        copy_gigabytes_, spread.median, spread.low, spread.high));
    }

    std::vector<GpuEncodeRequest> requests_of(const Measured& measured, std::span<const ElementCount> sizes) {
        pipeline_ = *codec::parse_pipeline(measured.text);
        weights_.assign(measured.samples, 1.0F / static_cast<float>(measured.samples));
        pointers_.clear();
        hints_.assign(sizes.size(), 0);
        std::vector<GpuEncodeRequest> requests(sizes.size());
        ElementCount first = 0;
        for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
            pointers_.push_back({array(0) + first, array(1) + first});
            codec::EncodeRequest& request = requests[tensor].request;
            request.pipeline = &pipeline_;
            request.elements = sizes[tensor];
            request.weights = weights_;
            request.batch_samples = measured.has_moments ? 1024 : 0;
            request.selection_hint = &hints_[tensor];
            request.in = {array(2) + first, array(3) + first};
            request.out = {array(4) + first, array(5) + first};
            first += (sizes[tensor] + 63) / 64 * 64;
        }
        for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
            requests[tensor].request.samples = std::span(pointers_[tensor]).first(measured.samples);
            if (measured.has_moments) requests[tensor].request.second_moments = std::span(pointers_[tensor]).last(1);
        }
        return requests;
    }

    Outcome time_batch(const Measured& measured, std::span<const ElementCount> sizes) {
        const auto requests = requests_of(measured, sizes);
        std::vector<codec::EncodeResult> results(sizes.size());
        const auto stream = static_cast<cudaStream_t>(encoder_->stream().handle());
        std::vector<float> times;
        std::vector<float> card_times;
        std::vector<float> host_times;
        Outcome outcome;
        for (unsigned repetition = 0; repetition < 2 * (options_.repetitions + 2); ++repetition) {
            const bool is_behind = repetition % 2 == 1;
            if (is_behind)
                static_cast<void>(is_done(cudaMemsetAsync(array(4), 0, kTwoArraysBytes, stream), "clearing"));
            const auto started = std::chrono::steady_clock::now();
            static_cast<void>(is_done(cudaEventRecord(begin_, stream), "recording"));
            if (!report_.expect_ok(encoder_->begin(requests), measured.text)) return {};
            static_cast<void>(is_done(cudaEventRecord(end_, stream), "recording"));
            if (!report_.expect_ok(encoder_->finish(results), measured.text)) return {};
            if (repetition < 4) continue;  // memory grows, hints settle
            (is_behind ? card_times : times).push_back(milliseconds());
            if (is_behind) continue;
            host_times.push_back(
                std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - started).count());
        }
        for (const auto& result : results) {
            outcome.kept += result.kept_elements;
            for (const auto& chunk : result.chunks) outcome.payload_bytes += chunk.bytes.size();
        }
        outcome.milliseconds = spread_of(times);
        outcome.card_milliseconds = spread_of(card_times);
        outcome.host_milliseconds = spread_of(host_times);
        outcome.is_valid = true;
        return outcome;
    }

    void print(const Measured& measured, const Outcome& outcome, ElementCount elements, const std::string& what) {
        if (!outcome.is_valid) return;
        const auto count = static_cast<double>(elements);
        const Spread& time = outcome.milliseconds;
        const double gigabytes =
            (count * measured.bytes_per_element + static_cast<double>(outcome.payload_bytes)) / time.median / 1e6;
        report_.figure(fmt::format(
            "{:<58} x{}{} {:<26} {:8.4f} ms ({:.4f} to {:.4f}), {:6.1f} G/s, {:.3f} of the copy at {} B, kept {:.3f} "
            "%, "
            "{:.2f} bits each; behind other work {:.4f} ms; to the caller {:.3f} ms",
            measured.text, measured.samples, measured.has_moments ? "+q" : "  ", what, time.median, time.low, time.high,
            count / time.median / 1e6, gigabytes / copy_gigabytes_, measured.bytes_per_element,
            100.0 * static_cast<double>(outcome.kept) / count,
            8.0 * static_cast<double>(outcome.payload_bytes) / std::max(1.0, static_cast<double>(outcome.kept)),
            outcome.card_milliseconds.median, outcome.host_milliseconds.median));
    }

    static constexpr float kVariance = 4.457F;

    const Options& options_;
    Report& report_;
    DeviceMemory memory_;
    std::unique_ptr<GpuEncoder> encoder_;
    cudaEvent_t begin_ = nullptr;
    cudaEvent_t end_ = nullptr;
    double copy_gigabytes_ = 1;
    codec::Pipeline pipeline_;
    std::vector<float> weights_;
    std::vector<std::array<const float*, 2>> pointers_;
    std::vector<std::uint32_t> hints_;
};

}  // namespace

void measure_encode(const Options& options, Report& report) { SpeedRun(options, report).run(); }

}  // namespace gradsieve::gpu_check

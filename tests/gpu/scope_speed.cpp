// How fast the phases of topk(scope=model) are on a device: each one between events around its kernels, and all of them
// from the first begin to the last finish, beside a device-to-device copy of the same run. The pass is counted with 12
// bytes an element (20 with a gate), each look behind it with 4 (8).
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/cuda/runtime.hpp"
#include "codec/narrow_scope.hpp"
#include "codec/select_topk.hpp"
#include "gpu_check.hpp"
#include "host_work.hpp"
#include "resnet50_sizes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace gradsieve::gpu_check {
namespace {

using codec::NextPhase;
using codec::ScopeMember;
using codec::ScopePhase;
using codec::cuda::DeviceMemory;
using codec::cuda::GpuEncoder;
using codec::cuda::GpuEncodeRequest;

constexpr ElementCount kMost = ElementCount{1} << 27U;
constexpr std::array kCodecs = {"topk(0.01, scope=model) | pow2(bits=4) | auto",
                                "topk(0.01, scope=model, gate=1) | pow2(bits=4) | auto"};

float median_of(std::vector<float> values) {
    std::ranges::sort(values);
    return values.empty() ? 0 : values[values.size() / 2];
}

class ScopeSpeed {
public:
    ScopeSpeed(const Options& options, Report& report) : options_(options), report_(report) {}

    void run() {
        if (!prepare()) return;
        measure_copy();
        std::vector<ElementCount> small(kResNet50Sizes.begin(), kResNet50Sizes.end());
        for (const char* codec : kCodecs) {
            measure(codec, {kMost}, "1 tensor");
            measure(codec, {kMost / 2, kMost / 4, kMost / 8, kMost / 8}, "4 tensors");
            measure(codec, small, fmt::format("{} tensors of a ResNet-50", small.size()));
        }
    }

private:
    bool is_done(cudaError_t error) { return report_.expect_ok(codec::cuda::status_of(error, "timing"), "timing"); }
    cudaStream_t stream() const { return static_cast<cudaStream_t>(encoder_->stream().handle()); }
    float* array(std::size_t number) const { return memory_.as<float>(number * kMost * sizeof(float)); }
    float milliseconds() {
        float elapsed = 0;
        static_cast<void>(is_done(cudaEventElapsedTime(&elapsed, begin_, end_)));
        return elapsed;
    }

    /// Arrays: sample, r in, v in, r out, v out.
    bool prepare() {
        auto memory = DeviceMemory::make(options_.device, 5 * kMost * sizeof(float), "arrays of the test");
        auto encoder = GpuEncoder::make(options_.device, {});
        if (!report_.expect_ok(memory.status(), "device memory") || !report_.expect_ok(encoder.status(), "an encoder"))
            return false;
        memory_ = std::move(*memory);
        encoder_ = std::move(*encoder);
        std::vector<float> host(kMost);
        for (std::size_t number = 0; number < 3; ++number) {
            fill_normal(host, options_.seed + number, number == 0 ? 0.1F : 1.0F);
            if (number == 2) std::ranges::fill(host, 1.0F);
            if (!is_done(cudaMemcpy(array(number), host.data(), kMost * sizeof(float), cudaMemcpyHostToDevice)))
                return false;
        }
        return is_done(cudaEventCreate(&begin_)) && is_done(cudaEventCreate(&end_));
    }

    void measure_copy() {
        std::vector<float> times;
        for (unsigned repetition = 0; repetition < options_.repetitions; ++repetition) {
            static_cast<void>(is_done(cudaEventRecord(begin_, stream())));
            static_cast<void>(is_done(
                cudaMemcpyAsync(array(3), array(0), 2 * kMost * sizeof(float), cudaMemcpyDeviceToDevice, stream())));
            static_cast<void>(is_done(cudaEventRecord(end_, stream())));
            if (!report_.expect_ok(encoder_->stream().synchronize(), "copying")) return;
            times.push_back(milliseconds());
        }
        copy_rate_ = 4.0 * kMost * sizeof(float) / median_of(times) / 1e6;
        report_.figure(fmt::format("device-to-device copy, bytes read + written: {:.0f} GB/s", copy_rate_));
    }

    void measure(const char* text, const std::vector<ElementCount>& sizes, const std::string& what) {
        const auto pipeline = *codec::parse_pipeline(text);
        std::vector<ScopeMember> members(sizes.size());
        std::vector<ScopeMember*> all;
        std::vector<const float*> samples;
        std::vector<GpuEncodeRequest> requests(sizes.size());
        const std::array weights = {1.0F};
        ElementCount elements = 0;
        for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
            all.push_back(&members[tensor]);
            samples.push_back(array(0) + elements);
            elements += (sizes[tensor] + 63) / 64 * 64;
        }
        elements = 0;
        ElementCount first = 0;
        for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
            codec::EncodeRequest& request = requests[tensor].request;
            request.pipeline = &pipeline;
            request.elements = sizes[tensor];
            request.samples = std::span(samples).subspan(tensor, 1);
            request.weights = weights;
            request.in = {array(1) + first, array(2) + first};
            request.out = {array(3) + first, array(4) + first};
            first += (sizes[tensor] + 63) / 64 * 64;
            elements += sizes[tensor];
        }
        constexpr std::size_t kPhases = 2 + codec::kNarrowLevels - 1;
        std::array<std::vector<float>, kPhases> times;
        std::vector<float> to_caller;
        std::vector<codec::EncodeResult> results(sizes.size());
        for (unsigned repetition = 0; repetition < options_.repetitions + 2; ++repetition) {
            const auto started = std::chrono::steady_clock::now();
            std::array<float, kPhases> of_phase{};
            std::size_t phase = 0;
            for (NextPhase next{ScopePhase::kObserve, {.k = codec::top_k_count(0.01, elements)}};;
                 next = codec::narrow_scope(next.terms, all)) {
                for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor)
                    requests[tensor].scope = {next.phase, next.terms, all[tensor]};
                static_cast<void>(is_done(cudaEventRecord(begin_, stream())));
                if (!report_.expect_ok(encoder_->begin(requests), text)) return;
                static_cast<void>(is_done(cudaEventRecord(end_, stream())));
                if (!report_.expect_ok(encoder_->finish(results), text)) return;
                of_phase[phase++] = milliseconds();
                if (next.phase == ScopePhase::kSettle || phase == kPhases) break;
            }
            const auto wall = std::chrono::steady_clock::now() - started;
            if (repetition < 2) continue;  // memory grows
            for (std::size_t number = 0; number < kPhases; ++number) times[number].push_back(of_phase[number]);
            to_caller.push_back(std::chrono::duration<float, std::milli>(wall).count());
        }
        float sum = 0;
        for (const auto& of_phase : times) sum += median_of(of_phase);
        ElementCount kept = 0;
        for (const auto& result : results) kept += result.kept_elements;
        const bool has_gate = codec::has_variance(pipeline);
        const double bytes = static_cast<double>(elements) * (has_gate ? 20 + 4 * 8 : 12 + 4 * 4);
        report_.figure(fmt::format(
            "{:<54} {:<26} {} elements: pass and first count {:.4f} ms, counts {:.4f} and {:.4f}, cut and code {:.4f}; "
            "in all {:.4f} ms, {:.1f} G/s, {:.2f} of the copy at {} B; to the caller {:.3f} ms; kept {:.3f} %",
            text, what, elements, median_of(times[0]), median_of(times[1]), median_of(times[2]), median_of(times[3]),
            sum, static_cast<double>(elements) / sum / 1e6, bytes / sum / 1e6 / copy_rate_, has_gate ? 52 : 28,
            median_of(to_caller), 100.0 * static_cast<double>(kept) / static_cast<double>(elements)));
    }

    const Options& options_;
    Report& report_;
    DeviceMemory memory_;
    std::unique_ptr<GpuEncoder> encoder_;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
    double copy_rate_ = 1;
};

}  // namespace

void measure_scope(const Options& options, Report& report) { ScopeSpeed(options, report).run(); }

}  // namespace gradsieve::gpu_check

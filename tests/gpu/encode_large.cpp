#include "encode_large.hpp"

#include "codec/cuda/gpu_encoder.hpp"
#include "codec/cuda/runtime.hpp"
#include "host_work.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <future>
#include <optional>

namespace gradsieve::gpu_check {
namespace {

using codec::cuda::DeviceMemory;
using codec::cuda::GpuEncoder;
using codec::cuda::GpuEncodeRequest;

/// Arrays of one tensor: two samples, two generations of r and v.
enum Array : std::size_t { kSample, kSecondSample, kResidualIn, kVarianceIn, kResidualOut, kVarianceOut, kArrays };

class LargeRun {
public:
    LargeRun(const Options& options, Report& report, ElementCount elements)
        : options_(options), report_(report), elements_(elements) {}

    bool prepare() {
        auto memory = DeviceMemory::make(options_.device, kArrays * stride_bytes(), "arrays of the test");
        auto encoder = GpuEncoder::make(options_.device, {});
        if (!report_.expect_ok(memory.status(), "device memory") || !report_.expect_ok(encoder.status(), "an encoder"))
            return false;
        memory_ = std::move(*memory);
        encoder_ = std::move(*encoder);
        for (auto& array : host_) prepare(array);
        for (auto& array : seen_) prepare(array);
        return true;
    }
    ~LargeRun() {
        for (auto& array : host_) static_cast<void>(cudaHostUnregister(array.data()));
        for (auto& array : seen_) static_cast<void>(cudaHostUnregister(array.data()));
    }
    LargeRun(const LargeRun&) = delete;
    LargeRun& operator=(const LargeRun&) = delete;

    void run(const char* text, std::size_t samples, unsigned steps) {
        const auto begin = std::chrono::steady_clock::now();
        run_steps(text, samples, steps);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        report_.figure(fmt::format("{:<60} {:>10} elements, {} steps: {:.1f} s", text, elements_, steps, took.count()));
    }

private:
    /// Page-locked where that is allowed: copies are faster then.
    void prepare(std::vector<float>& ret_array) {
        ret_array.resize(elements_);
        static_cast<void>(cudaHostRegister(ret_array.data(), elements_ * sizeof(float), cudaHostRegisterPortable));
        static_cast<void>(cudaGetLastError());
    }

    void run_steps(const char* text, std::size_t samples, unsigned steps) {
        pipeline_ = *codec::parse_pipeline(text);
        hint_ = cpu_hint_ = 0;
        for (const Array array : {kResidualIn, kVarianceIn}) {
            on_ranges(elements_, [&](std::size_t begin, std::size_t end) {
                std::fill(host_[array].begin() + begin, host_[array].begin() + end, 0.0F);
            });
            if (!upload(array)) return;
        }
        for (unsigned step = 0; step < steps; ++step) {
            const std::string name = fmt::format("{} of {} x {}, step {}", text, elements_, samples, step + 1);
            for (std::size_t sample = 0; sample < samples; ++sample)
                fill_normal(host_[sample], options_.seed + 17 * ++turn_, 1.0F + 0.25F * static_cast<float>(step));
            if (!run_step(name, samples)) return;
        }
    }

    ByteCount stride_bytes() const { return (elements_ * sizeof(float) + 1023) / 512 * 512; }
    float* device(Array array) const { return memory_.as<float>(array * stride_bytes()); }
    bool copied(cudaError_t error) {
        return report_.expect_ok(codec::cuda::status_of(error, "copying"), "copying arrays of the test");
    }
    /// Fills and copies on the device return before they are done, and the encoder's stream does not wait for them.
    bool are_settled() { return copied(cudaDeviceSynchronize()); }
    bool upload(Array array) {
        return copied(
            cudaMemcpy(device(array), host_[array].data(), elements_ * sizeof(float), cudaMemcpyHostToDevice));
    }

    bool run_step(const std::string& name, std::size_t samples) {
        const std::vector<float> weights(samples, 1.0F / static_cast<float>(samples));
        std::array<const float*, 2> pointers = {host_[kSample].data(), host_[kSecondSample].data()};
        codec::EncodeRequest request;
        request.pipeline = &pipeline_;
        request.elements = elements_;
        request.samples = std::span(pointers).first(samples);
        request.weights = weights;
        request.selection_hint = &cpu_hint_;
        request.in = {host_[kResidualIn].data(), host_[kVarianceIn].data()};
        request.out = {host_[kResidualOut].data(), host_[kVarianceOut].data()};
        // The CPU's form takes its time while the arrays go up and the GPU's form runs.
        auto expecting = std::async(std::launch::async, [&] { return codec::encode_tensor(request, workspace_); });
        const auto seen = run_on_gpu(name, request);
        const auto expected = expecting.get();
        if (!report_.expect_ok(expected.status(), name) || !seen) return false;
        compare(name, *expected, *seen);
        return compare_state(name);
    }

    std::optional<codec::EncodeResult> run_on_gpu(const std::string& name, const codec::EncodeRequest& request) {
        const std::size_t samples = request.samples.size();
        for (std::size_t sample = 0; sample < samples; ++sample)
            if (!upload(static_cast<Array>(sample))) return std::nullopt;
        std::array<const float*, 2> device_pointers = {device(kSample), device(kSecondSample)};
        std::array<GpuEncodeRequest, 1> requests;
        requests[0].request = request;
        requests[0].request.samples = std::span<const float* const>(device_pointers).first(samples);
        requests[0].request.selection_hint = &hint_;
        requests[0].request.in = {device(kResidualIn), device(kVarianceIn)};
        requests[0].request.out = {device(kResidualOut), device(kVarianceOut)};
        std::array<codec::EncodeResult, 1> results;
        if (!copied(cudaMemset(device(kResidualOut), 0xC5, 2 * stride_bytes())) || !are_settled() ||
            !report_.expect_ok(encoder_->encode(requests, results), name))
            return std::nullopt;
        return std::move(results[0]);
    }

    void compare(const std::string& name, const codec::EncodeResult& expected, const codec::EncodeResult& seen) {
        report_.expect(seen.kept_elements == expected.kept_elements, name + ": kept elements");
        report_.expect(seen.variance_source == expected.variance_source, name + ": variance source");
        constexpr std::uint32_t kMarginBits = 31;  // of the CPU's word, below its threshold
        report_.expect((hint_ & ~kMarginBits) == (cpu_hint_ & ~kMarginBits), name + ": hint");
        report_.expect(seen.chunks.size() == expected.chunks.size(), name + ": payloads");
        for (std::size_t chunk = 0; chunk < std::min(seen.chunks.size(), expected.chunks.size()); ++chunk)
            report_.expect(seen.chunks[chunk].chunk_index == expected.chunks[chunk].chunk_index &&
                               seen.chunks[chunk].bytes == expected.chunks[chunk].bytes,
                           fmt::format("{}: payload {}", name, chunk));
    }

    /// Compares the generations written, which the next step reads.
    bool compare_state(const std::string& name) {
        for (unsigned part = 0; part < 2; ++part) {
            const bool has_part = part == 0 ? codec::has_residual(pipeline_) : codec::has_variance(pipeline_);
            if (!has_part) continue;
            const auto in = static_cast<Array>(kResidualIn + part);
            const auto out = static_cast<Array>(kResidualOut + part);
            if (!copied(cudaMemcpy(seen_[part].data(), device(out), elements_ * sizeof(float), cudaMemcpyDeviceToHost)))
                return false;
            report_.expect(are_equal(seen_[part], host_[out]), name + (part == 0 ? ": residual" : ": variance"));
            std::swap(host_[in], host_[out]);
            if (!copied(cudaMemcpy(device(in), device(out), elements_ * sizeof(float), cudaMemcpyDeviceToDevice)))
                return false;
        }
        return are_settled();
    }

    const Options& options_;
    Report& report_;
    ElementCount elements_;
    DeviceMemory memory_;
    std::unique_ptr<GpuEncoder> encoder_;
    std::array<std::vector<float>, kArrays> host_;
    std::array<std::vector<float>, 2> seen_;
    codec::Pipeline pipeline_;
    codec::EncodeWorkspace workspace_;
    std::uint32_t hint_ = 0;
    std::uint32_t cpu_hint_ = 0;
    std::uint64_t turn_ = 0;
};

}  // namespace

void check_large(const Options& options, Report& report) {
    constexpr ElementCount kSizes[] = {25'600'000, 134'217'728, (ElementCount{1} << 28U) + 17};
    for (const ElementCount elements : kSizes) {
        LargeRun run(options, report, elements);
        if (!run.prepare()) return;
        const unsigned steps = elements < 100'000'000 ? 3 : elements < 200'000'000 ? 2 : 1;
        run.run("variance(alpha=1.5) | pow2(bits=4) | auto", 1, steps);
        run.run("variance(alpha=2) | pow2(bits=4) | auto", 2, 1);
        run.run("topk(0.01) | pow2(bits=4) | auto", 1, steps);
        run.run("all | sign", 1, steps);
        run.run("all | dither(levels=7)", 1, steps);
        run.run("all | dither(levels=7, feedback=none)", 1, steps);
        run.run("all | bf16", 1, 1);
        run.run("variance_hybrid(tau=1.5, alpha=0.5) | sign(scale=tau) | auto", 1, steps);
    }
}

}  // namespace gradsieve::gpu_check

// The encoder on several GPUs against the slow reference: every pipeline around the borders of chunks, where devices
// part; each device reaching the others' memory, and staged; and what only a tensor in parts can get wrong: ties that
// are cut in a later part, thresholds that every device missed, trouble in the last part, devices without a part.
#include "encode_pipelines.hpp"
#include "job_runs.hpp"

#include <fmt/format.h>

#include <bit>
#include <numeric>

namespace gradsieve::gpu_check {
namespace {

using codec::DataKind;
using codec::cuda::GpuEncoder;
using codec::cuda::GpuEncoderLimits;

struct Setting {
    std::size_t devices = 2;
    bool uses_peers = true;
};

class DevicesRun {
public:
    DevicesRun(const Options& options, Report& report, const Setting& setting)
        : options_(options), report_(report), devices_(setting.devices), cases_(backwards(devices_), report) {
        limits_.uses_peers = setting.uses_peers;
        limits_.staging_bytes = 1;  // a chunk at a time
    }
    bool open() { return open(limits_); }

    void run_pipelines(std::span<const codec::NamedPipeline> pipelines) {
        constexpr ElementCount kSizes[] = {kChunkElements + 1, kChunkElements + 4097, 2 * kChunkElements,
                                           2 * kChunkElements + 77};
        constexpr std::size_t kTogether = 6;
        std::vector<EncodeCase> cases;
        for (std::size_t at = 0; at < pipelines.size(); ++at) {
            const ElementCount large = kSizes[at % (options_.is_small ? 2 : std::size(kSizes))];
            const std::size_t samples = 1 + at % 3;
            cases.push_back(make_case(pipelines[at], large, samples, DataKind::kHeavyTailed));
            cases.back().offset_elements = at % 4 == 3 ? 1 : 0;
            cases.push_back(make_case(pipelines[at], 4101, samples, DataKind::kGaussian));
            cases.push_back(make_case(pipelines[at], 0, samples, DataKind::kGaussian));
            if ((at + 1) % kTogether == 0 || at + 1 == pipelines.size())
                run_steps(std::exchange(cases, {}), options_.is_small ? 1 : 2);
        }
    }

    void run_special() {
        std::vector<EncodeCase> cases;
        const auto add = [&](const char* text, ElementCount elements, std::size_t samples, DataKind kind) {
            cases.push_back(make_case({text, parsed(text)}, elements, samples, kind));
            return &cases.back();
        };
        // All are ties, and the last one that is kept lies in a part that is not the first; or in the first.
        add("topk(0.9995) | pow2(bits=4) | auto", kChunkElements + 5000, 1, DataKind::kConstant);
        add("topk(0.25) | sign | auto", kChunkElements + 5000, 2, DataKind::kConstant);
        // Nothing is above the remembered threshold, on any device; the gate leaves some.
        add("topk(0.01) | pow2(bits=4, scope=tensor) | auto", kChunkElements + 333, 1, DataKind::kGaussian)->hint =
            std::bit_cast<std::uint32_t>(1e6F);
        add("topk(0.02, gate=1) | f32 | auto", kChunkElements + 333, 2, DataKind::kGaussian)->hint =
            std::bit_cast<std::uint32_t>(3.5F);
        add("topk(0.5) | bf16 | auto", kChunkElements + 7, 1, DataKind::kZero);
        add("variance(alpha=1) | pow2(bits=4) | auto", kChunkElements + 50, 2, DataKind::kNotANumber);
        add("topk(0.01) | f32 | auto", kChunkElements + 50, 1, DataKind::kInfinite);
        auto* halves = add("topk(0.01) | pow2(bits=4) | auto", kChunkElements + 4097, 3, DataKind::kGaussian);
        halves->types.assign(3, codec::cuda::ElementType::kF16);
        halves->offset_elements = 3;
        auto* moments = add("variance(alpha=1) | pow2(bits=4) | auto", kChunkElements + 4097, 3, DataKind::kGaussian);
        moments->input.second_moments.resize(3);
        moments->input.batch_samples = 96;
        const auto misses = encoder_->threshold_misses();
        run_steps(std::move(cases), options_.is_small ? 1 : 3);
        report_.expect(encoder_->threshold_misses() >= misses + 2, "second looks are counted once for each tensor");
    }

    /// Rounds of one tensor each: every device has to cut them alike, also where its own part is small or empty.
    void run_tight() {
        GpuEncoderLimits limits = limits_;
        limits.batch_elements = kTileElements;
        if (!open(limits)) return;
        std::vector<EncodeCase> cases;
        for (const ElementCount elements : {kChunkElements + 1, ElementCount{3}, kChunkElements + 4096})
            for (const char* text : {"topk(0.01) | pow2(bits=4) | auto", "variance(alpha=1) | pow2(bits=4) | auto"})
                cases.push_back(make_case({text, parsed(text)}, elements, 1, DataKind::kGaussian));
        run_steps(std::move(cases), options_.is_small ? 1 : 2);
    }

private:
    /// The encoder's order is not the ordinals'.
    static std::vector<int> backwards(std::size_t count) {
        std::vector<int> devices(count);
        std::iota(devices.rbegin(), devices.rend(), 0);
        return devices;
    }
    bool open(const GpuEncoderLimits& limits) {
        auto encoder = GpuEncoder::make(backwards(devices_), limits);
        if (!report_.expect_ok(encoder.status(), fmt::format("an encoder of {} GPUs", devices_))) return false;
        encoder_ = std::move(*encoder);
        report_.expect(limits.uses_peers || !encoder_->is_direct(0), "an encoder that may not use peers says so");
        return true;
    }
    void run_steps(std::vector<EncodeCase> cases, unsigned steps) {
        for (EncodeCase& one : cases)
            one.name += fmt::format(" on {} GPUs{}", devices_, limits_.uses_peers ? "" : ", staged");
        for (unsigned step = 0; step < steps; ++step)
            if (!cases_.run_step(*encoder_, cases, options_.seed + 7919 * ++turn_)) return;
    }

    const Options& options_;
    Report& report_;
    std::size_t devices_;
    GpuEncoderLimits limits_;
    EncodeCases cases_;
    std::unique_ptr<GpuEncoder> encoder_;
    std::uint64_t turn_ = 0;
};

void check_refused_parts(Report& report) {
    const int devices[] = {0, 1};
    auto encoder = GpuEncoder::make(devices, {});
    if (!report.expect_ok(encoder.status(), "an encoder of 2 GPUs")) return;
    const auto pipeline = parsed("all | f32");
    alignas(16) float value = 0;
    const float* sample = &value;
    const float weight = 1;
    codec::cuda::GpuEncodeRequest request;
    request.request.pipeline = &pipeline;
    request.request.elements = kChunkElements + 1;
    request.request.samples = {&sample, 1};
    request.request.weights = {&weight, 1};
    const auto expect_refused = [&](std::span<const codec::cuda::GpuEncodePart> parts, const std::string& text) {
        request.parts = parts;
        const Status status = (*encoder)->begin({&request, 1});
        report.expect(status.code() == StatusCode::kInvalidArgument && status.text().find(text) != std::string::npos,
                      "expected '" + text + "', saw " + status.to_string());
    };
    using codec::cuda::GpuEncodePart;
    const std::vector<GpuEncodePart> one = {{{0, kChunkElements + 1}, {}, {}}};
    const std::vector<GpuEncodePart> inside = {{{0, 4096}, {}, {}}, {{4096, kChunkElements - 4095}, {}, {}}};
    const std::vector<GpuEncodePart> gap = {{{0, 0}, {}, {}}, {{kChunkElements, 1}, {}, {}}};
    const std::vector<GpuEncodePart> less = {{{0, kChunkElements}, {}, {}}, {{kChunkElements, 0}, {}, {}}};
    expect_refused(one, "parts: 1 for 2 devices");
    expect_refused(inside, "a part from element 4096");
    expect_refused(gap, "a part from element 1048576; allowed is 0");
    expect_refused(less, "parts: 1048576 elements of 1048577");
}

}  // namespace

void check_encode_on_gpus(const Options& options, Report& report) {
    const std::size_t count = device_count();
    if (count < 2) return report.skip("encoding on several GPUs: this host has one");
    check_refused_parts(report);
    std::vector<Setting> settings;
    for (std::size_t devices = 2; devices <= std::min<std::size_t>(count, 3); ++devices)
        for (const bool uses_peers : {true, false}) settings.push_back({devices, uses_peers});
    const auto pipelines = all_pipelines();
    for (std::size_t number = 0; number < settings.size(); ++number) {
        DevicesRun run(options, report, settings[number]);
        if (!run.open()) return;
        // Small: every pipeline in one setting; otherwise in all.
        const std::size_t stride = options.is_few ? 12 * settings.size() : options.is_small ? settings.size() : 1;
        std::vector<codec::NamedPipeline> chosen;
        for (std::size_t at = options.is_small ? number : 0; at < pipelines.size(); at += stride)
            chosen.push_back(pipelines[at]);
        run.run_pipelines(chosen);
        const bool is_at_end = number == 0 || number + 1 == settings.size();
        if (!options.is_small || is_at_end) run.run_special();
        if (!options.is_small || !is_at_end) run.run_tight();
    }
}

}  // namespace gradsieve::gpu_check

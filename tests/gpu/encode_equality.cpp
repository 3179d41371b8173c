// The GPU's encoder against the slow reference: every pipeline, size, kind of data and number of samples, several steps
// in a row, many tensors in one batch.
#include "encode_cases.hpp"
#include "encode_large.hpp"
#include "encode_pipelines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace gradsieve::gpu_check {
namespace {

using codec::DataKind;
using codec::NamedPipeline;
using codec::cuda::ElementType;
using codec::cuda::GpuEncoder;

constexpr ElementCount kMillion = 1'000'000;

/// What makes a request unlike the plain ones: moments, 16-bit samples, odd addresses, a rank that observes nothing.
std::vector<EncodeCase> make_variants(const NamedPipeline& named, ElementCount elements, DataKind kind) {
    std::vector<EncodeCase> cases;
    const auto add = [&](std::size_t samples, const char* what) -> EncodeCase& {
        cases.push_back(make_case(named, elements, samples, kind));
        cases.back().name += what;
        return cases.back();
    };
    for (const std::size_t ranks : {1U, 3U}) {
        EncodeCase& moments = add(3, ", moments");
        moments.input.second_moments.resize(ranks);
        moments.input.batch_samples = 96;
    }
    add(1, ", fp16").types = {ElementType::kF16};
    add(2, ", bf16 and fp32").types = {ElementType::kBf16, ElementType::kF32};
    add(8, ", eight");
    add(1, ", odd address").offset_elements = 1;
    add(4, ", odd address").offset_elements = 3;
    EncodeCase& halves = add(2, ", fp16 at an odd address");
    halves.types = {ElementType::kF16, ElementType::kF16};
    halves.offset_elements = 5;
    EncodeCase& idle = add(9, ", some observe nothing");
    idle.input.weights = {0.25F, 0.0F, 0.5F, 0.0F, 0.0F, 0.25F, 0.0F, 0.0F, 0.0F};
    return cases;
}

class EqualityRun {
public:
    EqualityRun(const Options& options, Report& report)
        : options_(options), report_(report), cases_({options.device}, report) {}

    void run() {
        auto encoder = GpuEncoder::make(options_.device, {});
        if (!report_.expect_ok(encoder.status(), "making an encoder")) return;
        encoder_ = std::move(*encoder);
        std::vector<NamedPipeline> pipelines;
        const auto all = all_pipelines();
        for (std::size_t number = options_.part - 1; number < all.size(); number += options_.parts)
            pipelines.push_back(all[number]);
        for (std::size_t place = 0; place < pipelines.size(); ++place) run_small(pipelines[place], place % 2 == 0);
        constexpr std::size_t kTogether = 4;  // the reference is slow: enough cases for all cores of the host
        for (std::size_t first = 0; first < pipelines.size() && !options_.is_small; first += kTogether)
            run_million(std::span(pipelines).subspan(first, std::min(kTogether, pipelines.size() - first)));
        if (options_.part == 1) {
            run_mixed();
            run_tight();
        }
        report_.figure(fmt::format("{} second looks of top-k, {} MiB of workspace", encoder_->threshold_misses(),
                                   encoder_->workspace_bytes() >> 20U));
    }

private:
    void run_steps(GpuEncoder& encoder, std::vector<EncodeCase> cases, unsigned steps) {
        for (unsigned step = 0; step < steps; ++step)
            if (!cases_.run_step(encoder, cases, options_.seed + 1000003 * ++turn_)) return;
    }

    /// All kinds and numbers of samples of one size at once. `is_short`: where few sizes are asked for, the short ones.
    void run_small(const NamedPipeline& named, bool is_short) {
        std::vector<ElementCount> sizes = {0, 1, 31, 32, 33, 1023, 4101};
        if (options_.is_small) sizes = {0, 33, 4101};
        if (options_.is_few && is_short) sizes = {0, 33};
        if (options_.is_few && !is_short) sizes = {4101};
        for (const ElementCount elements : sizes) {
            std::vector<EncodeCase> cases;
            constexpr std::array<std::size_t, 4> kSamples = {1, 2, 4, 9};
            for (const DataKind kind : codec::every_data_kind())
                for (const std::size_t samples : kSamples) {
                    const auto number = static_cast<unsigned>(kind) % 4;
                    if (options_.is_few ? samples != kSamples[number] : options_.is_small && samples + number > 4)
                        continue;
                    cases.push_back(make_case(named, elements, samples, kind));
                }
            for (auto& variant : make_variants(named, elements, DataKind::kGaussian))
                cases.push_back(std::move(variant));
            run_steps(*encoder_, std::move(cases), options_.is_small ? 2 : 3);
        }
    }

    void run_million(std::span<const NamedPipeline> pipelines) {
        std::vector<EncodeCase> cases;
        for (const NamedPipeline& named : pipelines) {
            for (const DataKind kind : {DataKind::kGaussian, DataKind::kHeavyTailed, DataKind::kConstant,
                                        DataKind::kWideRange, DataKind::kNotANumber})
                cases.push_back(make_case(named, kMillion, 1, kind));
            cases.push_back(make_case(named, kMillion, 2, DataKind::kHeavyTailed));
            cases.push_back(make_case(named, kChunkElements - 1, 1, DataKind::kGaussian));
            cases.push_back(make_case(named, kChunkElements, 9, DataKind::kGaussian));
            cases.push_back(make_case(named, kChunkElements + 1, 1, DataKind::kGaussian));
            cases.push_back(make_case(named, 2 * kChunkElements + 4097, 1, DataKind::kInfinite));
        }
        run_steps(*encoder_, std::move(cases), 2);
    }

    /// Every pipeline in one batch.
    void run_mixed() {
        std::vector<EncodeCase> cases;
        for (const NamedPipeline& named : all_pipelines())
            for (const ElementCount elements : {1U, 5000U, 70000U})
                cases.push_back(make_case(named, elements, 1 + elements % 2, DataKind::kHeavyTailed));
        run_steps(*encoder_, std::move(cases), options_.is_few ? 1 : 3);
    }

    /// Batches of far more elements than a round may have: slots are used again, and deferred tensors take turns.
    void run_tight() {
        auto encoder = GpuEncoder::make(options_.device,
                                        {.batch_elements = kTileElements, .workspace_bytes = 0, .multiprocessors = 1});
        if (!report_.expect_ok(encoder.status(), "making a small encoder")) return;
        const ElementCount elements = options_.is_small ? 70'000 : 5 * kChunkElements + 77;
        for (const char* text : {"variance(alpha=1.5) | pow2(bits=4) | auto", "topk(0.01) | pow2(bits=4) | auto"}) {
            std::vector<EncodeCase> cases;
            for (const ElementCount size : {elements, ElementCount{40'000}, ElementCount{3}})
                cases.push_back(make_case({text, parsed(text)}, size, 1, DataKind::kGaussian));
            run_steps(**encoder, std::move(cases), 2);
        }
    }

    const Options& options_;
    Report& report_;
    EncodeCases cases_;
    std::unique_ptr<GpuEncoder> encoder_;
    std::uint64_t turn_ = 0;
};

}  // namespace

void check_encode_equality(const Options& options, Report& report) {
    EqualityRun(options, report).run();
    check_refusals(options, report);
}

}  // namespace gradsieve::gpu_check

// The decoder on several GPUs against the CPU's: every pipeline over tensors that devices share, results on each of
// them in turn, reached or staged; and corrupt payloads in any device's part, refused in the words of the CPU.
#include "decode_cases.hpp"
#include "job_runs.hpp"
#include "tests/codec/payload_cases.hpp"

#include <fmt/format.h>

#include <numeric>

namespace gradsieve::gpu_check {
namespace {

using codec::cuda::GpuDecoder;
using test::random_word;

struct Setting {
    std::vector<int> devices;
    bool uses_peers = true;

    [[nodiscard]] std::string name() const {
        return fmt::format(" on {} GPUs{}", devices.size(), uses_peers ? "" : ", staged");
    }
    [[nodiscard]] std::unique_ptr<GpuDecoder> decoder(Report& report) const {
        auto decoder = GpuDecoder::make(devices, {.staging_bytes = 1, .uses_peers = uses_peers});
        return report.expect_ok(decoder.status(), "a decoder" + name()) ? std::move(*decoder) : nullptr;
    }
};

/// Two GPUs and three, backwards: the decoder's order is not the ordinals'.
std::vector<Setting> settings_of(std::size_t device_count) {
    std::vector<Setting> settings;
    for (std::size_t count = 2; count <= std::min<std::size_t>(device_count, 3); ++count) {
        std::vector<int> devices(count);
        std::iota(devices.rbegin(), devices.rend(), 0);
        for (const bool uses_peers : {true, false}) settings.push_back({devices, uses_peers});
    }
    return settings;
}

void check_pipelines(const Options& options, const Setting& setting, std::span<const codec::NamedPipeline> pipelines,
                     const std::vector<float>& pool, Report& report) {
    const auto decoder = setting.decoder(report);
    if (decoder == nullptr) return;
    constexpr ElementCount kSizes[] = {kChunkElements + 3, kChunkElements + 4096, 2 * kChunkElements, 5000};
    std::vector<DecodeCase> cases(pipelines.size());
    in_parallel(cases.size(), [&](std::size_t place) {
        const ElementCount elements = kSizes[place % (options.is_small ? 2 : std::size(kSizes))];
        cases[place] = make_case(pipelines[place], elements, 1 + place % 3, place, pool);
        cases[place].name += setting.name();
    });
    DecodeComparison comparison(*decoder, std::move(cases), 1, setting.devices);
    for (std::size_t step = 0; step < kDecodeSteps; ++step) comparison.run_step(step, report);
}

/// A flipped bit, a byte more or half of it away.
void spoil(Bytes& inout_payload, std::uint64_t& state) {
    const auto at = random_word(state) % inout_payload.size();
    switch (random_word(state) % 4) {
        case 0: inout_payload.resize(inout_payload.size() / 2); break;
        case 1: inout_payload.push_back(std::byte{1}); break;
        default: inout_payload[at] ^= static_cast<std::byte>(1U << (random_word(state) % 8)); break;
    }
}

void check_hostile(const Options& options, const Setting& setting, const std::vector<float>& pool, Report& report) {
    const auto decoder = setting.decoder(report);
    if (decoder == nullptr) return;
    std::uint64_t state = options.seed + setting.devices.size();
    const ElementCount elements = 2 * kChunkElements + 50;
    std::vector<DecodeCase> cases;
    for (const char* text : {"topk(0.001) | pow2(bits=4) | rice", "topk(0.001) | sign | bitmap", "all | bf16"}) {
        const auto pipeline = codec::parse_pipeline(text);
        if (!report.expect_ok(pipeline.status(), text)) return;
        const std::array<const float*, 1> samples = {pool.data()};
        const auto good = encode_on_cpu(*pipeline, elements, samples);
        for (unsigned turn = 0; turn < (options.is_small ? 3U : 40U); ++turn) {
            DecodeCase one{fmt::format("{} spoiled {}{}", text, turn, setting.name()), elements, {}};
            std::vector<NodeStep> nodes(2, {0.5F, good});
            for (auto& node : nodes)
                for (auto& chunk : node.chunks)
                    if (random_word(state) % 3 == 0) spoil(chunk.bytes, state);
            // Out of order, or of no such chunk: found before any device has work.
            if (turn == 1) std::swap(nodes[1].chunks.front(), nodes[1].chunks.back());
            if (turn == 2) nodes[0].chunks.back().chunk_index = 3;
            one.steps.push_back(std::move(nodes));
            cases.push_back(std::move(one));
        }
    }
    DecodeComparison comparison(*decoder, std::move(cases), 2, setting.devices);
    comparison.run_step(0, report);
    report.expect(comparison.refused() > 0, "corrupt payloads are refused" + setting.name());
}

}  // namespace

void check_decode_on_gpus(const Options& options, Report& report) {
    const auto settings = settings_of(device_count());
    if (settings.empty()) return report.skip("decoding on several GPUs: this host has one");
    const auto pool = make_gradient_pool(2 * kChunkElements + 10000, options.seed);
    const auto pipelines = pipelines_with_coders();
    for (std::size_t number = 0; number < settings.size(); ++number) {
        // Small: every pipeline in one setting; otherwise in all.
        const std::size_t stride = options.is_few ? 12 * settings.size() : options.is_small ? settings.size() : 1;
        std::vector<codec::NamedPipeline> chosen;
        for (std::size_t at = options.is_small ? number : 0; at < pipelines.size(); at += stride)
            chosen.push_back(pipelines[at]);
        check_pipelines(options, settings[number], chosen, pool, report);
        if (!options.is_few || number + 1 == settings.size()) check_hostile(options, settings[number], pool, report);
    }
}

}  // namespace gradsieve::gpu_check

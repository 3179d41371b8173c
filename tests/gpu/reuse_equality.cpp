// Steps that are skipped, with the tensor on a card, against those of the CPU, bit for bit: verdicts, payloads and
// records, shares, signatures, r and `sent`, of many tensors in one batch, step after step, with gradients that change
// slowly.
#include "codec/cuda/device_values.hpp"
#include "codec/cuda/gpu_reuse.hpp"
#include "codec/cuda/reuse_kernel.hpp"
#include "codec/cuda/runtime.hpp"
#include "encode_cases.hpp"
#include "encode_pipelines.hpp"
#include "gpu_check.hpp"
#include "job_runs.hpp"
#include "similarity_sections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace gradsieve::gpu_check {
namespace {

using codec::DataKind;
using codec::cuda::DeviceMemory;
using codec::cuda::ElementType;
using codec::cuda::GpuReuseRequest;
using codec::cuda::GpuReuseResult;
using Values = std::vector<float>;

constexpr std::size_t kSteps = 7;
constexpr std::size_t kRescaledStep = 4;

struct ReuseCase {
    const char* codec;
    ElementCount elements;
    std::vector<ElementType> types = {ElementType::kF32};
    DataKind kind = DataKind::kGaussian;
    float change = 0.05F;      ///< of the gradient, from step to step
    std::size_t bad_step = 0;  ///< whose gradient has a NaN
};

std::vector<ReuseCase> reuse_cases(bool is_small) {
    using enum ElementType;
    std::vector<ReuseCase> cases = {
        {"all | bf16", 0},
        {"all | bf16", 1},
        {"all | dither(levels=7)", 5000, {kF32, kBf16}},
        {"all | dither(levels=7)", 4096, {kF32}, DataKind::kGaussian, 3.0F},
        {"all | sign", 33},
        {"all | f16", 4097, {kF16, kF16, kF16}},
        {"all | pow2(bits=4)", 9001},
        {"all | natural", 70'001, {kF32}, DataKind::kHeavyTailed},
        {"rotate | all | minmax(bits=4)", 9000},
        {"all | integer(100)", 5000},
        {"compensate(0.75, gamma=0.5) | all | exponential_dither(4)", 5000},
        {"all | dither(levels=7)", 5000, {kF32}, DataKind::kZero, 0.0F},
        {"all | dither(levels=7)", 5000, {kF32}, DataKind::kGaussian, 0.05F, 3},
        {"all | dither(levels=31)", kChunkElements + 4097, {kBf16}},
    };
    if (!is_small) cases.push_back({"all | dither(levels=7)", 18 * kChunkElements + 3, {kF32, kF32}});
    return cases;
}

/// A tensor of one node: what it keeps on a card, and on the CPU.
struct ReuseNode {
    ReuseNode(const ReuseCase& one, std::uint64_t seed)
        : what(one),
          pipeline(parsed(std::string("similarity(skip=0.5, most=2) | ") + one.codec)),
          held(pipeline, one.elements, 1),
          random(seed) {
        for (std::size_t generation = 0; generation < 2; ++generation) {
            residuals[generation].assign(one.elements, 0.0F);
            for (auto* sent : {&host_sent[generation], &card_sent[generation]})
                sent->assign(codec::sent_floats(pipeline, one.elements), 0.0F);
        }
        for (std::size_t sample = 0; sample < one.types.size(); ++sample)
            steady.push_back(codec::make_gradient(one.kind, one.elements, random));
        weights.assign(one.types.size(), 1.0F / static_cast<float>(one.types.size()));
    }
    ReuseCase what;
    codec::Pipeline pipeline;
    codec::HeldPayloads held;
    std::mt19937_64 random;
    std::vector<Values> steady, samples;
    std::vector<float> weights;
    std::array<Values, 2> residuals, host_sent, card_sent;
    std::size_t live = 0;
    // on the card
    std::array<DeviceMemory, 2> card_residuals;
    std::vector<DeviceMemory> card_samples;
    std::vector<const float*> host_views, card_views;
    std::vector<int> sample_devices;
    std::vector<codec::cuda::GpuEncodePart> parts;
};

class ReuseRun {
public:
    ReuseRun(const Options& options, Report& report, std::vector<int> devices, bool uses_peers)
        : options_(options), report_(report), devices_(std::move(devices)), uses_peers_(uses_peers) {}

    void run(const std::vector<ReuseCase>& cases) {
        auto encoder = codec::cuda::GpuEncoder::make(devices_, {.staging_bytes = 1, .uses_peers = uses_peers_});
        auto decoder = codec::cuda::GpuDecoder::make(devices_, {.uses_peers = uses_peers_});
        if (!report_.expect_ok(encoder.status(), "an encoder") || !report_.expect_ok(decoder.status(), "a decoder"))
            return;
        encoder_ = std::move(*encoder);
        decoder_ = std::move(*decoder);
        for (const ReuseCase& one : cases) {
            nodes_.push_back(std::make_unique<ReuseNode>(one, options_.seed + 31 * nodes_.size()));
            if (!place(*nodes_.back())) return;
        }
        for (step_ = 1; step_ <= kSteps; ++step_)
            if (!run_step()) return;
        report_.expect(skipped_ > nodes_.size() && full_ > nodes_.size(),
                       fmt::format("{} steps were skipped, {} were not", skipped_, full_));
    }

private:
    /// Where a tensor lies: the last device, so that samples of the first have to come.
    std::size_t home() const { return devices_.size() - 1; }
    const codec::cuda::Stream& stream() const { return encoder_->stream(home()); }
    void expect(const ReuseNode& node, bool holds, const std::string& what) {
        report_.expect(holds, fmt::format("{}, {} elements, {} devices, step {}: {}", node.what.codec,
                                          node.what.elements, devices_.size(), step_, what));
    }
    bool make(DeviceMemory& ret_memory, std::size_t device, ByteCount bytes) {
        auto made = DeviceMemory::make(devices_[device], std::max<ByteCount>(bytes, 4), "arrays of the test");
        if (!report_.expect_ok(made.status(), "device memory")) return false;
        ret_memory = std::move(*made);
        const auto& on = encoder_->stream(device);
        return report_.expect_ok(codec::cuda::fill_bytes(on, ret_memory.data(), ret_memory.size(), 0), "clearing") &&
               report_.expect_ok(on.synchronize(), "clearing");
    }
    bool place(ReuseNode& node) {
        const ByteCount bytes = node.what.elements * sizeof(float);
        for (auto& residual : node.card_residuals)
            if (!make(residual, home(), bytes)) return false;
        node.card_samples.resize(node.what.types.size());
        for (auto& sample : node.card_samples) {
            if (!make(sample, 0, bytes)) return false;
            node.card_views.push_back(sample.as<float>());
            node.sample_devices.push_back(devices_.front());
        }
        return true;
    }

    bool draw(ReuseNode& node) {
        node.samples.clear();
        node.host_views.clear();
        for (std::size_t sample = 0; sample < node.steady.size(); ++sample) {
            Values values = node.steady[sample];
            const Values noise = codec::make_gradient(DataKind::kGaussian, node.what.elements, node.random);
            for (std::size_t at = 0; at < values.size(); ++at) values[at] += node.what.change * noise[at];
            if (step_ == node.what.bad_step) values[values.size() / 2] = std::numeric_limits<float>::quiet_NaN();
            const auto type = node.what.types[sample];
            auto* data = node.card_samples[sample].data();
            const auto& on = encoder_->stream(0);
            if (!report_.expect_ok(write_values(on, values, data, type), "samples") ||
                !report_.expect_ok(read_values(on, data, type, values), "samples"))
                return false;
            node.samples.push_back(std::move(values));
        }
        for (const Values& values : node.samples) node.host_views.push_back(values.data());
        return true;
    }

    codec::EncodeRequest request_of(const ReuseNode& node, std::size_t number) const {
        codec::EncodeRequest request;
        request.pipeline = &node.pipeline;
        request.tensor = 500 + number;
        request.step = static_cast<Step>(step_);
        request.elements = node.what.elements;
        request.weights = node.weights;
        request.rescale = step_ == kRescaledStep ? 0.5F : 1.0F;
        request.random_seed = 9;
        request.selection_seed = 77;
        return request;
    }
    codec::EncodeRequest on_host(ReuseNode& node, std::size_t number) const {
        auto request = request_of(node, number);
        request.samples = node.host_views;
        request.in = {.residual = node.residuals[node.live].data(), .sent = node.host_sent[node.live].data()};
        request.out = {.residual = node.residuals[1 - node.live].data(), .sent = node.host_sent[1 - node.live].data()};
        return request;
    }
    GpuReuseRequest on_card(ReuseNode& node, std::size_t number) const {
        GpuReuseRequest asked;
        asked.held = node.held.of(0);
        asked.encode.sample_types = node.what.types;
        auto& request = asked.encode.request;
        request = request_of(node, number);
        request.samples = node.card_views;
        codec::StateView in{.residual = node.card_residuals[node.live].as<float>()};
        codec::StateView out{.residual = node.card_residuals[1 - node.live].as<float>()};
        if (devices_.size() > 1) {
            node.parts.assign(devices_.size(), {});
            node.parts.back() = {{0, node.what.elements}, in, out};
            asked.encode.parts = node.parts;
            asked.encode.sample_devices = node.sample_devices;
        } else {
            request.in = in;
            request.out = out;
        }
        request.in.sent = node.card_sent[node.live].data();
        request.out.sent = node.card_sent[1 - node.live].data();
        return asked;
    }

    bool run_step() {
        std::vector<GpuReuseRequest> asked;
        for (std::size_t number = 0; number < nodes_.size(); ++number) {
            if (!draw(*nodes_[number])) return false;
            asked.push_back(on_card(*nodes_[number], number));
        }
        std::vector<GpuReuseResult> seen(nodes_.size());
        if (!report_.expect_ok(reuse_.encode(*encoder_, *decoder_, asked, seen), "a step")) return false;
        for (std::size_t number = 0; number < nodes_.size(); ++number) compare(*nodes_[number], number, seen[number]);
        return true;
    }

    void compare(ReuseNode& node, std::size_t number, const GpuReuseResult& seen) {
        const auto request = on_host(node, number);
        const codec::Signature gradient(request.tensor, request.samples, request.weights, request.elements);
        const auto wanted = codec::encode_or_reuse(request, node.held.of(0), gradient, workspace_);
        if (!report_.expect_ok(wanted.status(), "the CPU's step")) return;
        const auto& encoded = seen.reuse.encoded;
        expect(node, encoded.non_finite.has_value() == wanted->encoded.non_finite.has_value(), "finite or not");
        if (wanted->encoded.non_finite) {
            expect(node, encoded.chunks.empty() && !seen.gradient, "nothing is sent then");
            return;  // the step has failed; the live generation stays
        }
        expect(node, seen.reuse.is_reuse == wanted->is_reuse && seen.reuse.has_records == wanted->has_records,
               fmt::format("skipped {}, by the CPU {}", seen.reuse.is_reuse, wanted->is_reuse));
        expect(node, seen.reuse.share == wanted->share, "the estimated share");
        expect(node, seen.gradient && std::ranges::equal(seen.gradient->sums(), gradient.sums()), "signature");
        const auto same = [](const auto& a, const auto& b) {
            return a.chunk_index == b.chunk_index && std::ranges::equal(a.bytes.view(), b.bytes.view());
        };
        expect(node, std::ranges::equal(encoded.chunks, wanted->encoded.chunks, same), "payloads");
        (wanted->is_reuse ? skipped_ : full_) += 1;
        node.live = 1 - node.live;
        Values residual(node.what.elements);
        report_.expect_ok(read_values(stream(), node.card_residuals[node.live].data(), ElementType::kF32, residual),
                          "reading r");
        const auto same_bits = [](const Values& a, const Values& b) {
            return a.size() == b.size() &&
                   (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
        };
        expect(node, same_bits(residual, node.residuals[node.live]), "r");
        expect(node, same_bits(node.card_sent[node.live], node.host_sent[node.live]), "sent");
        hold(node, wanted->encoded);
    }

    void hold(ReuseNode& node, const codec::EncodeResult& encoded) {
        std::vector<codec::ChunkView> views;
        for (const auto& chunk : encoded.chunks) views.push_back({chunk.chunk_index, chunk.bytes.view()});
        const codec::Contribution own[] = {{1.0F, views}};
        report_.expect_ok(node.held.take(static_cast<Step>(step_), own).status(), "holding a payload");
        node.held.commit(static_cast<Step>(step_));
    }

    const Options& options_;
    Report& report_;
    const std::vector<int> devices_;
    const bool uses_peers_;
    std::unique_ptr<codec::cuda::GpuEncoder> encoder_;
    std::unique_ptr<codec::cuda::GpuDecoder> decoder_;
    codec::cuda::GpuReuse reuse_;
    codec::EncodeWorkspace workspace_;
    std::vector<std::unique_ptr<ReuseNode>> nodes_;
    std::size_t step_ = 0, skipped_ = 0, full_ = 0;
};

/// What decides, tile by tile: few cases come so near to the bound that a verdict would tell.
void check_sums(const Options& options, Report& report) {
    constexpr ElementCount kElements = 2 * kTileElements + 809;
    constexpr ElementCount kTiles = 3;
    std::mt19937_64 random(options.seed);
    Values values = codec::make_gradient(DataKind::kHeavyTailed, kElements, random);
    const Values decoded = codec::make_gradient(DataKind::kHeavyTailed, kElements, random);
    const auto stream = codec::cuda::Stream::make(options.device);
    auto memory = DeviceMemory::make(options.device, 2 * kElements * sizeof(float) + 2 * kTiles * sizeof(double) + 8,
                                     "arrays of the test");
    if (!report.expect_ok(stream.status(), "a stream") || !report.expect_ok(memory.status(), "device memory")) return;
    auto* const sums = memory->as<double>();
    auto* const on_card = memory->as<float>(2 * kTiles * sizeof(double));
    std::array<double, 2 * kTiles> seen{};
    Values left(kElements);
    const bool has_run =
        report.expect_ok(write_values(*stream, values, on_card, ElementType::kF32), "p") &&
        report.expect_ok(write_values(*stream, decoded, on_card + kElements, ElementType::kF32), "d") &&
        report.expect_ok(codec::cuda::status_of(codec::cuda::launch_subtract_tiles(
                                                    {on_card, on_card + kElements, kElements, sums, sums + kTiles},
                                                    static_cast<cudaStream_t>(stream->handle())),
                                                "subtracting"),
                         "subtracting") &&
        report.expect_ok(stream->synchronize(), "subtracting") &&
        report.expect_ok(read_values(*stream, on_card, ElementType::kF32, left), "p - d") &&
        report.expect_ok(
            codec::cuda::status_of(cudaMemcpy(seen.data(), sums, sizeof(seen), cudaMemcpyDeviceToHost), "sums"),
            "sums");
    if (!has_run) return;
    for (ElementCount tile = 0; tile < kTiles; ++tile) {
        const ElementCount first = tile * kTileElements;
        const std::size_t count = std::min<ElementCount>(kTileElements, kElements - first);
        const double before = codec::residual_square_sum({values.data() + first, count});
        for (ElementCount at = first; at < first + count; ++at) values[at] = values[at] - decoded[at];
        const double after = codec::residual_square_sum({values.data() + first, count});
        report.expect(seen[tile] == before && seen[kTiles + tile] == after,
                      fmt::format("sums of tile {}: {} and {}, by the CPU {} and {}", tile, seen[tile],
                                  seen[kTiles + tile], before, after));
    }
    report.expect(left == values, "p - d");
}

}  // namespace

void check_reuse(const Options& options, Report& report) {
    const auto cases = reuse_cases(options.is_small);
    check_sums(options, report);
    ReuseRun(options, report, {options.device}, true).run(cases);
    if (device_count() < 2) return report.skip("skipped steps on two GPUs: this host has one");
    const std::span few(cases.data() + 1, 3);
    ReuseRun(options, report, {0, 1}, false).run({few.begin(), few.end()});
}

}  // namespace gradsieve::gpu_check

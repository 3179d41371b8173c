// The phases of lowrank and sketch with the tensor on the card against those of the CPU, on two nodes, one of which has
// no card: payloads of both phases, r, momentum and factor, averages in every type and digests have the same bits.
#include "codec/cuda/device_values.hpp"
#include "codec/cuda/gpu_phases.hpp"
#include "codec/stages/low_rank.hpp"
#include "encoder_harness.hpp"
#include "gpu_check.hpp"
#include "host_work.hpp"
#include "phase_cases.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gradsieve::gpu_check {
namespace {

using codec::DataKind;
using codec::DecodeResult;
using codec::EncodeRequest;
using codec::EncodeResult;
using codec::cuda::DeviceMemory;
using codec::cuda::ElementType;
using codec::cuda::GpuEncoder;
using codec::cuda::GpuEncodeRequest;
using codec::cuda::GpuPhaseCodecs;
using codec::cuda::GpuPhaseRequest;
using codec::cuda::read_values;
using codec::cuda::Stream;
using codec::cuda::write_values;
using Values = std::vector<float>;

constexpr TensorId kTensor = 77;
constexpr std::uint64_t kSelectionSeed = 5;

/// State of a node in host memory, twice.
struct HostState {
    Values residual, momentum, factor;
    codec::StateView view() {
        return {.residual = residual.data(),
                .momentum = momentum.empty() ? nullptr : momentum.data(),
                .factor = factor.data()};
    }
};
struct HostNode {
    HostNode(const codec::Pipeline& pipeline, ElementCount elements)
        : memory(pipeline, elements), average(elements), result(kTensor, average.data(), elements) {
        for (auto& state : states) {
            state.residual.resize(elements);
            if (has_momentum(pipeline)) state.momentum.resize(elements);
            if (has_factor(pipeline)) state.factor.resize(codec::matrix_shape(pipeline, elements).right_elements());
        }
    }
    std::array<HostState, 2> states;
    codec::PhaseMemory memory;
    Values average;
    codec::ResultTensor result;
};

struct DeviceNode {
    std::array<DeviceMemory, 2> residuals, momenta;
    std::array<Values, 2> factors;  ///< on the host
    std::vector<DeviceMemory> samples, results;
    std::optional<codec::PhaseMemory> memory;
    codec::StateView view(std::size_t generation) {
        return {.residual = residuals[generation].as<float>(),
                .momentum = momenta[generation].as<float>(),
                .factor = factors[generation].data()};
    }
};

bool same_payloads(const EncodeResult& left, const EncodeResult& right) {
    return left.kept_elements == right.kept_elements &&
           std::ranges::equal(left.chunks, right.chunks, [](const auto& a, const auto& b) {
               return a.chunk_index == b.chunk_index && std::ranges::equal(a.bytes.view(), b.bytes.view());
           });
}

class PhaseRun {
public:
    PhaseRun(const Options& options, Report& report) : options_(options), report_(report) {}

    bool open() {
        auto encoder = GpuEncoder::make(options_.device, {});
        const auto devices = codec::cuda::list_devices();
        if (!report_.expect_ok(encoder.status(), "an encoder") || !report_.expect_ok(devices.status(), "devices"))
            return false;
        encoder_ = std::move(*encoder);
        codecs_.emplace(options_.device, (*devices)[static_cast<std::size_t>(options_.device)].multiprocessors);
        return true;
    }

    void run(const PhaseCase& one, std::size_t steps) {
        name_ = fmt::format("{}, {} elements, {} samples of {}", one.text, one.elements, one.samples.size(),
                            codec::data_kind_name(one.kind));
        case_ = &one;
        const auto pipeline = codec::parse_pipeline(one.text);
        if (!report_.expect_ok(pipeline.status(), name_)) return;
        pipeline_ = *pipeline;
        HostNode shadow(pipeline_, one.elements);  // what the card's node is on the CPU
        HostNode other(pipeline_, one.elements);
        DeviceNode node;
        if (!prepare(node)) return;
        live_ = 0;
        for (step_ = 1; step_ <= steps; ++step_) {
            rescale_ = step_ == 2 ? 0.5F : 1.0F;
            if (!run_step(node, shadow, other)) return;
        }
    }

    void run_refusals(const char* text) {
        const PhaseCase one{text, 5000};
        name_ = "refusals";
        case_ = &one;
        pipeline_ = *codec::parse_pipeline(one.text);
        step_ = 3;
        DeviceNode node;
        if (!prepare(node)) return;
        const std::vector<const float*> samples = {node.samples.front().as<float>()};
        EncodeRequest request = request_of(samples);
        request.in = node.view(0);
        request.out = node.view(1);
        const GpuPhaseRequest phase_request{request, &*node.memory};
        std::array<EncodeResult, 1> encoded;
        const auto early = encode_second_phases(stream(), {&phase_request, 1}, *codecs_, encoded);
        expect(early.code() == StatusCode::kInvalidArgument &&
                   early.text().find("call decode_first_phase") != std::string::npos,
               "a second phase without a first: " + early.to_string());
        Values result(one.elements);
        codec::ResultTensor on_host(kTensor, result.data(), result.size());
        codec::PhaseMemory memory(pipeline_, one.elements);
        const Bytes garbage(17, std::byte{0xA5});
        const codec::ChunkView chunk{0, garbage};
        const codec::Contribution contribution{1.0F, {&chunk, 1}};
        for (const bool has_first : {false, true}) {
            if (has_first)
                for (auto* each : {&*node.memory, &memory})
                    report_.expect_ok(decode_first_phase({.step = 3}, {}, *each), "nobody sends anything");
            const codec::cuda::GpuPhaseDecode decode{
                &*node.memory, kTensor, 3, {&contribution, 1}, {{.data = node.results.front().data()}}};
            const std::array devices = {codec::cuda::GpuPhaseDevice{&stream(), &*codecs_}};
            std::array answers = {Result<DecodeResult>(DecodeResult{})};
            report_.expect_ok(decode_last_phases(devices, {&decode, 1}, answers), "an error of one tensor alone");
            const auto wanted = decode_last_phase(3, {&contribution, 1}, memory, on_host).status();
            expect(wanted.code() == (has_first ? StatusCode::kVersionMismatch : StatusCode::kInvalidArgument) &&
                       answers[0].status().to_string() == wanted.to_string(),
                   "the CPU's verdict: " + answers[0].status().to_string());
        }
    }

private:
    const Stream& stream() const { return encoder_->stream(); }
    void expect(bool holds, const std::string& what) {
        report_.expect(holds, fmt::format("{}, step {}: {}", name_, step_, what));
    }

    bool make(DeviceMemory& ret_memory, ByteCount bytes) {
        auto made = DeviceMemory::make(options_.device, std::max<ByteCount>(bytes, 4), "arrays of the test");
        if (!report_.expect_ok(made.status(), "device memory")) return false;
        ret_memory = std::move(*made);
        return report_.expect_ok(codec::cuda::fill_bytes(stream(), ret_memory.data(), ret_memory.size(), 0),
                                 "clearing");
    }
    ElementType result_type(std::size_t number) const { return static_cast<ElementType>(number % 3); }

    bool prepare(DeviceNode& ret_node) {
        const ByteCount bytes = case_->elements * sizeof(float);
        for (std::size_t generation = 0; generation < 2; ++generation) {
            if (!make(ret_node.residuals[generation], bytes) || !make(ret_node.momenta[generation], bytes))
                return false;
            if (has_factor(pipeline_))
                ret_node.factors[generation].resize(codec::matrix_shape(pipeline_, case_->elements).right_elements());
        }
        ret_node.samples.resize(case_->samples.size());
        ret_node.results.resize(case_->results);
        for (auto& sample : ret_node.samples)
            if (!make(sample, bytes)) return false;
        for (auto& result : ret_node.results)
            if (!make(result, bytes)) return false;
        ret_node.memory.emplace(pipeline_, case_->elements);
        return report_.expect_ok(stream().synchronize(), "clearing");
    }

    /// Samples of the card's node, and as the host reads them.
    bool draw(DeviceNode& node, std::vector<Values>& ret_samples) {
        std::mt19937_64 random(options_.seed + 1000 * step_ + case_->elements);
        for (std::size_t number = 0; number < node.samples.size(); ++number) {
            auto values = codec::make_gradient(case_->kind, case_->elements, random);
            if (step_ == case_->bad_step && number == 0 && !values.empty())
                values[values.size() / 2] = std::numeric_limits<float>::quiet_NaN();
            const auto type = case_->samples[number];
            if (!report_.expect_ok(write_values(stream(), values, node.samples[number].data(), type), "samples") ||
                !report_.expect_ok(read_values(stream(), node.samples[number].data(), type, values), "samples"))
                return false;
            ret_samples.push_back(std::move(values));
        }
        return true;
    }

    EncodeRequest request_of(const std::vector<const float*>& samples) {
        weights_.assign(samples.size(), 1.0F / static_cast<float>(samples.size()));
        EncodeRequest request;
        request.pipeline = &pipeline_;
        request.tensor = kTensor;
        request.step = static_cast<Step>(step_);
        request.elements = case_->elements;
        request.samples = samples;
        request.weights = weights_;
        request.rescale = rescale_;
        request.node_count = 2;
        request.selection_seed = kSelectionSeed;
        return request;
    }

    bool run_step(DeviceNode& node, HostNode& shadow, HostNode& other) {
        std::vector<Values> samples;
        if (!draw(node, samples)) return false;
        std::vector<const float*> on_host, on_device;
        for (const auto& values : samples) on_host.push_back(values.data());
        for (const auto& memory : node.samples) on_device.push_back(memory.as<float>());
        std::mt19937_64 random(options_.seed + 31 * step_ + 1);
        const Values theirs = codec::make_gradient(DataKind::kGaussian, case_->elements, random);
        const std::vector<const float*> of_other = {theirs.data()};
        EncodeRequest own = request_of(on_device);
        own.in = node.view(live_);
        own.out = node.view(1 - live_);
        const GpuPhaseRequest phase_request{own, &*node.memory};
        bool is_lost = false;  // of a node whose first phase fails the others' payloads are decoded all the same
        for (unsigned phase = 0; phase < 2; ++phase) {
            std::array<EncodeResult, 1> encoded;
            EncodeResult expected, others;
            if (!is_lost &&
                (!encode(phase, phase_request, encoded) || !encode_on_host(phase, on_host, shadow, expected)))
                return false;
            if (!encode_on_host(phase, of_other, other, others)) return false;
            if (expected.non_finite) {
                expect(encoded[0].non_finite && encoded[0].non_finite->element == expected.non_finite->element &&
                           encoded[0].non_finite->sample_index == expected.non_finite->sample_index,
                       "the element that is no number");
                expect(encoded[0].chunks.empty(), "nothing is sent then");
                is_lost = true;
            } else {
                expect(!encoded[0].non_finite && same_payloads(encoded[0], expected),
                       fmt::format("payloads of phase {}", phase));
            }
            const std::array results = {&encoded[0], &others};
            if (!(phase == 0 ? decode_first(results, node, shadow, other) : decode_last(results, node, shadow, other)))
                return false;
        }
        if (is_lost) return true;  // the live generation stays
        live_ = 1 - live_;
        compare_state(node, shadow);
        return true;
    }

    bool encode(unsigned phase, const GpuPhaseRequest& request, std::array<EncodeResult, 1>& ret_results) {
        const std::span one(&request, 1);
        if (phase == 1) return report_.expect_ok(encode_second_phases(stream(), one, *codecs_, ret_results), name_);
        const auto pass = codec::cuda::first_pass(pipeline_, request.request.step);
        GpuEncodeRequest gpu_request;
        gpu_request.request = request.request;
        gpu_request.request.pipeline = &pass;
        gpu_request.sample_types = case_->samples;
        return report_.expect_ok(encoder_->encode({&gpu_request, 1}, ret_results), name_) &&
               report_.expect_ok(finish_first_phases(stream(), one, *codecs_, ret_results), name_);
    }

    bool encode_on_host(unsigned phase, const std::vector<const float*>& samples, HostNode& node,
                        EncodeResult& ret_result) {
        EncodeRequest request = request_of(samples);
        request.in = node.states[live_].view();
        request.out = node.states[1 - live_].view();
        auto encoded = codec::encode_phase(phase, request, node.memory, workspace_);
        if (!report_.expect_ok(encoded.status(), name_)) return false;
        ret_result = std::move(*encoded);
        return true;
    }

    struct Contributions {
        explicit Contributions(std::span<const EncodeResult* const> results) : views(results.size()) {
            for (std::size_t node = 0; node < results.size(); ++node) {
                for (const auto& chunk : results[node]->chunks)
                    views[node].push_back({chunk.chunk_index, chunk.bytes.view()});
                all.push_back({0.5F, views[node]});
            }
        }
        std::vector<std::vector<codec::ChunkView>> views;
        std::vector<codec::Contribution> all;
    };

    bool decode_first(std::span<const EncodeResult* const> results, DeviceNode& node, HostNode& shadow,
                      HostNode& other) {
        const Contributions contributions(results);
        const auto step = static_cast<Step>(step_);
        for (auto* memory : {&*node.memory, &shadow.memory, &other.memory})
            if (!report_.expect_ok(decode_first_phase({.step = step}, contributions.all, *memory), name_)) return false;
        return true;
    }

    bool decode_last(std::span<const EncodeResult* const> results, DeviceNode& node, HostNode& shadow,
                     HostNode& other) {
        const Contributions contributions(results);
        const auto step = static_cast<Step>(step_);
        const auto expected = decode_last_phase(step, contributions.all, shadow.memory, shadow.result);
        const auto theirs = decode_last_phase(step, contributions.all, other.memory, other.result);
        if (!report_.expect_ok(expected.status(), name_) || !report_.expect_ok(theirs.status(), name_)) return false;
        codec::cuda::GpuPhaseDecode request{&*node.memory, kTensor, step, contributions.all, {}};
        for (std::size_t number = 0; number < node.results.size(); ++number) {
            static_cast<void>(
                codec::cuda::fill_bytes(stream(), node.results[number].data(), node.results[number].size(), 0xFF));
            request.results.push_back(
                {node.results[number].data(), result_type(number), false, number % 2 == 0 ? options_.device : -1, {}});
        }
        std::array answers = {Result<DecodeResult>(DecodeResult{})};
        const std::array devices = {codec::cuda::GpuPhaseDevice{&stream(), &*codecs_}};
        if (!report_.expect_ok(decode_last_phases(devices, {&request, 1}, answers), name_) ||
            !report_.expect_ok(answers[0].status(), name_))
            return false;
        expect(answers[0]->digest == expected->digest && answers[0]->digest == theirs->digest, "digest");
        expect(answers[0]->touched_elements == expected->touched_elements, "touched elements");
        expect(are_equal(shadow.average, other.average), "averages of the nodes");
        for (std::size_t number = 0; number < node.results.size(); ++number) compare_result(node, shadow, number);
        return true;
    }

    void compare_result(const DeviceNode& node, const HostNode& shadow, std::size_t number) {
        const auto type = result_type(number);
        Values seen(case_->elements);
        Values wanted(case_->elements);
        auto& rounded = node.samples.front();  // has been read
        report_.expect_ok(read_values(stream(), node.results[number].data(), type, seen), "reading a result");
        report_.expect_ok(write_values(stream(), shadow.average, rounded.data(), type), "rounding");
        report_.expect_ok(read_values(stream(), rounded.data(), type, wanted), "rounding");
        expect(are_equal(seen, wanted), fmt::format("average in type {}", static_cast<unsigned>(type)));
    }

    void compare_state(const DeviceNode& node, HostNode& shadow) {
        Values seen(case_->elements);
        report_.expect_ok(read_values(stream(), node.residuals[live_].data(), ElementType::kF32, seen), "reading r");
        expect(are_equal(seen, shadow.states[live_].residual), "r");
        expect(are_equal(node.factors[live_], shadow.states[live_].factor), "factor");
        if (!has_momentum(pipeline_)) return;
        report_.expect_ok(read_values(stream(), node.momenta[live_].data(), ElementType::kF32, seen), "reading u");
        expect(are_equal(seen, shadow.states[live_].momentum), "u");
    }

    const Options& options_;
    Report& report_;
    std::unique_ptr<GpuEncoder> encoder_;
    std::optional<GpuPhaseCodecs> codecs_;
    codec::EncodeWorkspace workspace_;
    // of the case in hand
    const PhaseCase* case_ = nullptr;
    std::string name_;
    codec::Pipeline pipeline_;
    Values weights_;
    std::size_t step_ = 0, live_ = 0;
    float rescale_ = 1;
};

}  // namespace

void check_low_rank(const Options& options, Report& report) {
    PhaseRun run(options, report);
    if (!run.open()) return;
    for (const auto& one : low_rank_cases(options.is_small)) run.run(one, 4);
    run.run_refusals("lowrank(2, 50)");
}

void check_sketch(const Options& options, Report& report) {
    PhaseRun run(options, report);
    if (!run.open()) return;
    for (const auto& one : sketch_cases(options.is_small)) run.run(one, 4);
    run.run_refusals("sketch(0.02)");
}

}  // namespace gradsieve::gpu_check

// The GPU's averages, digests and counts against the CPU decoder's, bit for bit: every pipeline and index coder, sizes
// around every boundary, one to eight nodes, several steps of which some leave chunks, nodes or everything out.
#include "decode_cases.hpp"
#include "tests/codec/encoder_harness.hpp"
#include "tests/codec/payload_cases.hpp"

#include <fmt/format.h>

namespace gradsieve::gpu_check {
namespace {

void check_pipelines(ElementCount elements, const std::vector<std::size_t>& node_counts, std::uint64_t seed,
                     codec::cuda::GpuDecoder& decoder, Report& report) {
    constexpr std::size_t kPoolSlack = 10000;
    const auto pool = make_gradient_pool(elements + kPoolSlack, seed);
    const auto pipelines = pipelines_with_coders();
    // Small tensors: every pipeline with every number of nodes. Large ones: the numbers in turn.
    const std::size_t rounds = elements > kChunkElements ? 1 : node_counts.size();
    for (std::size_t round = 0; round < rounds; ++round) {
        std::vector<DecodeCase> cases(pipelines.size());
        in_parallel(cases.size(), [&](std::size_t place) {
            const std::size_t nodes = node_counts[(place + round) % node_counts.size()];
            cases[place] = make_case(pipelines[place], elements, nodes, place, pool);
        });
        DecodeComparison comparison(decoder, std::move(cases), round);
        for (std::size_t step = 0; step < kDecodeSteps; ++step) comparison.run_step(step, report);
    }
}

/// Coded chunks of every quantizer, coder and shape of data, two nodes each.
void check_shapes(std::size_t elements, std::uint64_t seed, codec::cuda::GpuDecoder& decoder, Report& report) {
    std::vector<DecodeCase> cases;
    for (const auto& pipeline_case : test::all_pipeline_cases())
        for (const test::Shape shape : test::all_shapes()) {
            DecodeCase one;
            one.name = fmt::format("{}, {}, n = {}", pipeline_case.text, test::shape_name(shape), elements);
            one.elements = elements;
            std::vector<NodeStep> nodes(2);
            for (std::uint64_t node = 0; node < nodes.size(); ++node) {
                const auto data = test::make_case_data(pipeline_case, shape, elements, seed + node);
                auto coded =
                    test::code(pipeline_case.pipeline, elements, pipeline_case.is_dense, data.indices, data.values);
                nodes[node].factor = 0.5F;
                if (!coded.payload.empty()) nodes[node].chunks.push_back({0, std::move(coded.payload)});
            }
            one.steps.push_back(std::move(nodes));
            cases.push_back(std::move(one));
        }
    DecodeComparison comparison(decoder, std::move(cases), elements);
    comparison.run_step(0, report);
}

/// Each of four nodes sends by another of the pipelines.
void check_mixture(ElementCount elements, std::uint64_t seed, const std::vector<codec::NamedPipeline>& pipelines,
                   codec::cuda::GpuDecoder& decoder, Report& report) {
    const auto pool = make_gradient_pool(elements + 10000, seed);
    std::vector<DecodeCase> cases;
    for (std::size_t place = 0; place < pipelines.size(); ++place) {
        DecodeCase one;
        one.name = fmt::format("mixed forms from {}, n = {}", pipelines[place].name, elements);
        one.elements = elements;
        std::vector<NodeStep> nodes(4);
        for (std::size_t node = 0; node < nodes.size(); ++node) {
            const auto& pipeline = pipelines[(place + 5 * node) % pipelines.size()].pipeline;
            const std::array<const float*, 1> samples = {pool.data() + 100 * node + place};
            nodes[node] = {0.25F, encode_on_cpu(pipeline, elements, samples, node + 1)};
        }
        one.steps.push_back(std::move(nodes));
        cases.push_back(std::move(one));
    }
    DecodeComparison comparison(decoder, std::move(cases), elements);
    comparison.run_step(0, report);
}

/// Nodes that send different forms: lists between dense payloads of one chunk.
void check_mixed(ElementCount elements, std::uint64_t seed, codec::cuda::GpuDecoder& decoder, Report& report) {
    auto pipelines = pipelines_with_coders();
    std::erase_if(pipelines, [](const codec::NamedPipeline& named) {  // votes and rotations stand by themselves
        return codec::combine_of(named.pipeline.quantizer.kind) != codec::Combine::kGather ||
               codec::has_rotation(named.pipeline);
    });
    check_mixture(elements, seed, pipelines, decoder, report);
}

/// Nodes that quantize rotations in different ways, and of which some have keys of their own.
void check_rotations(ElementCount elements, std::uint64_t seed, codec::cuda::GpuDecoder& decoder, Report& report) {
    std::vector<codec::NamedPipeline> pipelines;
    for (const auto& named : pipelines_with_coders())
        if (codec::has_rotation(named.pipeline)) pipelines.push_back(named);
    check_mixture(elements, seed, pipelines, decoder, report);
}

void check_large(std::uint64_t seed, codec::cuda::GpuDecoder& decoder, Report& report) {
    constexpr ElementCount kElements = 103'000'003;
    const auto pool = make_gradient_pool(kElements + 1000, seed);
    for (const char* text : {"topk(0.01) | pow2(bits=4) | auto", "all | f32", "all | sign"}) {
        const auto pipeline = codec::parse_pipeline(text);
        if (!report.expect_ok(pipeline.status(), text)) continue;
        DecodeCase one{fmt::format("{} of {} from 2 nodes", text, kElements), kElements, {{{}, {}}}};
        in_parallel(2, [&](std::size_t node) {
            const std::array<const float*, 1> samples = {pool.data() + 500 * node};
            one.steps[0][node] = {0.5F, encode_on_cpu(*pipeline, kElements, samples)};
        });
        std::vector<DecodeCase> cases;
        cases.push_back(std::move(one));
        DecodeComparison comparison(decoder, std::move(cases), 0);
        comparison.run_step(0, report);
    }
}

/// Requests that no payload can mend.
void check_refused_requests(codec::cuda::GpuDecoder& decoder, Report& report) {
    const auto expect_refused = [&](const codec::cuda::GpuDecodeRequest& request, const std::string& text) {
        const Status status = decoder.begin({&request, 1});
        report.expect(status.code() == StatusCode::kInvalidArgument && status.text().find(text) != std::string::npos,
                      "expected '" + text + "', saw " + status.to_string());
    };
    const codec::Contribution too_large{1.5F, {}};
    expect_refused({1, 1, 8, {&too_large, 1}, {}, nullptr}, "factor 1.5");
    const codec::cuda::GpuResult nowhere;
    expect_refused({1, 1, 8, {}, {&nowhere, 1}, nullptr}, "a result without memory");
    std::vector<Result<codec::DecodeResult>> none;
    report.expect(decoder.finish(none).code() == StatusCode::kFailedPrecondition, "finish without begin");
    report.expect_ok(decoder.begin({}), "an empty batch");
    report.expect(decoder.begin({}).code() == StatusCode::kFailedPrecondition, "begin during a batch");
    report.expect_ok(decoder.finish(none), "an empty batch's end");
}

}  // namespace

void check_decode_equality(const Options& options, Report& report) {
    auto decoder = codec::cuda::GpuDecoder::make(options.device);
    if (!report.expect_ok(decoder.status(), "making a decoder")) return;
    check_refused_requests(**decoder, report);
    const std::vector<std::size_t> sizes =
        options.is_small ? std::vector<std::size_t>{1, 33, 4101} : std::vector<std::size_t>{1, 31, 32, 33, 1023, 4101};
    const std::vector<std::size_t> nodes =
        options.is_few ? std::vector<std::size_t>{1, 3} : std::vector<std::size_t>{1, 2, 3, 8};
    for (const std::size_t elements : sizes) {
        check_shapes(elements, options.seed, **decoder, report);
        check_pipelines(elements, nodes, options.seed + elements, **decoder, report);
        check_mixed(elements, options.seed + elements, **decoder, report);
        check_rotations(elements, options.seed + elements, **decoder, report);
    }
    if (options.is_small) return;
    constexpr ElementCount kTwoChunks = kChunkElements + 3;
    check_pipelines(kTwoChunks, {1, 2, 3, 8}, options.seed + 1, **decoder, report);
    check_mixed(kTwoChunks, options.seed + 2, **decoder, report);
    check_rotations(kTwoChunks, options.seed + 2, **decoder, report);
    check_large(options.seed + 3, **decoder, report);
    report.figure(fmt::format("decoder's workspace: {} MiB", (*decoder)->workspace_bytes() >> 20U));
}

}  // namespace gradsieve::gpu_check

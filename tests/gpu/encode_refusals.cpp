#include "codec/cuda/device.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/narrow_scope.hpp"
#include "encode_large.hpp"

#include <fmt/format.h>

#include <array>
#include <vector>

namespace gradsieve::gpu_check {
namespace {

using codec::cuda::ElementType;
using codec::cuda::GpuEncoder;
using codec::cuda::GpuEncodeRequest;

bool is_refused(const Status& status, StatusCode code, std::string_view part) {
    return status.code() == code && status.text().find(part) != std::string::npos;
}

}  // namespace

void check_refusals(const Options& options, Report& report) {
    auto made = GpuEncoder::make(options.device, {.batch_elements = 1U << 20U, .workspace_bytes = 1U << 20U});
    auto memory = codec::cuda::DeviceMemory::make(options.device, 1U << 20U, "arrays of the test");
    if (!report.expect_ok(made.status(), "making an encoder") || !report.expect_ok(memory.status(), "device memory"))
        return;
    GpuEncoder& encoder = **made;
    report.expect_ok(codec::cuda::fill_bytes(encoder.stream(), memory->data(), memory->size(), 0), "clearing them");
    const auto pipeline = *codec::parse_pipeline("topk(0.1) | f32");
    const std::array<float, 1> weights = {1.0F};
    std::array<const float*, 1> samples = {memory->as<float>()};
    std::array<GpuEncodeRequest, 1> requests;
    codec::EncodeRequest& request = requests[0].request;
    request.pipeline = &pipeline;
    request.elements = 1000;
    request.samples = samples;
    request.weights = weights;
    request.in.residual = memory->as<float>(1U << 17U);
    request.out.residual = memory->as<float>(1U << 18U);
    std::array<codec::EncodeResult, 1> results;

    report.expect(is_refused(encoder.finish(results), StatusCode::kFailedPrecondition, "call begin first"),
                  "finish before begin");
    samples[0] = reinterpret_cast<const float*>(memory->data() + 2);
    report.expect(is_refused(encoder.begin(requests), StatusCode::kInvalidArgument, "tensor 0 of the batch: sample"),
                  "a sample at half an element");
    samples[0] = memory->as<float>();
    const std::array types = {ElementType::kF32, ElementType::kF16};
    requests[0].sample_types = types;
    report.expect(is_refused(encoder.begin(requests), StatusCode::kInvalidArgument, "sample types: 2 for 1 samples"),
                  "more types than samples");
    requests[0].sample_types = {};
    request.elements = ElementCount{1} << 32U;
    report.expect(is_refused(encoder.begin(requests), StatusCode::kInvalidArgument, "split the tensor"),
                  "more elements than 32 bits number");
    request.elements = 1U << 24U;
    report.expect(is_refused(encoder.begin(requests), StatusCode::kResourceExhausted, "allowed are 1 MiB"),
                  "more workspace than is allowed");
    request.elements = 1000;
    const auto together = *codec::parse_pipeline("topk(0.1, scope=model) | f32");
    codec::ScopeMember member;
    const auto expect_no_phase = [&](const codec::Pipeline& of, const codec::cuda::GpuScopePhase& phase,
                                     const char* text) {
        request.pipeline = &of;
        requests[0].scope = phase;
        report.expect(is_refused(encoder.begin(requests), StatusCode::kInvalidArgument, text), text);
        requests[0].scope.reset();
    };
    using enum codec::ScopePhase;
    expect_no_phase(pipeline, {kObserve, {}, &member}, "allowed is a codec with topk(scope=model)");
    expect_no_phase(together, {}, "no member");
    expect_no_phase(together, {kList, {}, &member}, "a list or a cut");
    expect_no_phase(together, {kCount, {.level = codec::kNarrowLevels}, &member}, "level 3");
    expect_no_phase(together, {kSettle, {}, &member}, "0 parts were counted, of 1");
    for (const char* text : {"lowrank(2)", "sketch(0.01)"}) {
        const auto phases = *codec::parse_pipeline(text);
        request.pipeline = &phases;
        report.expect(is_refused(encoder.begin(requests), StatusCode::kInvalidArgument, "encode first_pass"),
                      fmt::format("a codec whose steps have two phases: {}", text));
    }
    request.pipeline = &pipeline;
    report.expect_ok(encoder.begin(requests), "a batch after refused ones");
    report.expect(is_refused(encoder.begin(requests), StatusCode::kFailedPrecondition, "call finish first"),
                  "a second batch before the first is finished");
    report.expect_ok(encoder.finish(results), "finishing it");
    report.expect_ok(encoder.encode({}, {}), "an empty batch");
}

}  // namespace gradsieve::gpu_check

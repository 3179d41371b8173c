// Differences to what was sent: payloads, what was sent and results on one GPU and on several against the reference and
// the CPU's forms. What other sections run with every pipeline is left out; here is what only these can get wrong:
// steps in which nothing is sent, sums that are no finite numbers, and parts on several devices.
#include "codec/cuda/device_values.hpp"
#include "codec/cuda/gpu_difference.hpp"
#include "codec/difference.hpp"
#include "encode_cases.hpp"
#include "encode_pipelines.hpp"
#include "job_runs.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace gradsieve::gpu_check {
namespace {

using codec::DataKind;
using codec::cuda::DeviceMemory;
using codec::cuda::ElementType;
using codec::cuda::GpuDecodeBase;
using codec::cuda::GpuDecoder;
using codec::cuda::GpuEncoder;
using codec::cuda::GpuEncodeRequest;

constexpr float kHuge = 3.3e38F;

bool same(const std::vector<float>& left, const std::vector<float>& right) {
    return static_cast<bool>(codec::same_bits(left, right));
}

/// Arrays of one size in a device's memory.
class Arrays {
public:
    Arrays(const codec::cuda::Stream& stream, ElementCount elements, Report& report)
        : stream_(stream), elements_(elements), report_(report) {}
    float* put(const std::vector<float>& values) {
        auto made = DeviceMemory::make(stream_.device(), values.size() * sizeof(float), "arrays of the test");
        if (!report_.expect_ok(made.status(), "device memory of the test")) return nullptr;
        memory_.push_back(std::move(*made));
        auto* const array = memory_.back().as<float>();
        report_.expect_ok(codec::cuda::write_values(stream_, values, array, ElementType::kF32), "writing an array");
        return array;
    }
    float* make() { return put(std::vector<float>(elements_, -1.0F)); }
    std::vector<float> read(const float* array) {
        std::vector<float> values(elements_);
        report_.expect_ok(codec::cuda::read_values(stream_, array, ElementType::kF32, values), "reading an array");
        return values;
    }

private:
    const codec::cuda::Stream& stream_;
    ElementCount elements_;
    Report& report_;
    std::vector<DeviceMemory> memory_;
};

/// One step of one tensor, on the CPU and on a GPU, from the same h.
void check_step(GpuEncoder& encoder, const std::string& text, const std::vector<float>& gradient,
                const std::vector<float>& sent, std::optional<ElementCount> bad, Report& report) {
    const auto pipeline = parsed(text);
    const auto elements = gradient.size();
    const std::string where = fmt::format("{} of {}", text, elements);
    std::vector<float> before = sent;
    std::vector<float> after(elements);
    const float* const sample = gradient.data();
    const float weight = 1;
    codec::EncodeRequest request;
    request.pipeline = &pipeline;
    request.elements = elements;
    request.samples = {&sample, 1};
    request.weights = {&weight, 1};
    request.in.residual = before.data();
    request.out.residual = after.data();
    codec::EncodeWorkspace workspace;
    const auto expected = codec::encode_tensor(request, workspace);
    if (!report.expect_ok(expected.status(), where)) return;
    report.expect(
        expected->non_finite.has_value() == bad.has_value() && (!bad || expected->non_finite->element == *bad),
        where + ": the case is what it is meant to be");

    Arrays arrays(encoder.stream(), elements, report);
    const float* const device_sample = arrays.put(gradient);
    GpuEncodeRequest gpu_request{request};
    gpu_request.request.samples = {&device_sample, 1};
    gpu_request.request.in.residual = arrays.put(sent);
    gpu_request.request.out.residual = arrays.make();
    std::array<codec::EncodeResult, 1> results;
    if (!report.expect_ok(encoder.encode({&gpu_request, 1}, results), where)) return;
    const auto& seen = results.front();
    report.expect(seen.non_finite.has_value() == bad.has_value() &&
                      (!bad || (seen.non_finite->element == *bad && seen.non_finite->sample_index == 0)),
                  where + ": where a sum is not finite");
    bool is_same = seen.chunks.size() == expected->chunks.size() && seen.kept_elements == expected->kept_elements;
    for (std::size_t chunk = 0; is_same && chunk < seen.chunks.size(); ++chunk)
        is_same = std::ranges::equal(seen.chunks[chunk].bytes.view(), expected->chunks[chunk].bytes.view());
    report.expect(is_same, where + ": payloads");
    report.expect(same(arrays.read(gpu_request.request.in.residual), sent), where + ": what was sent before");
    if (!bad) report.expect(same(arrays.read(gpu_request.request.out.residual), after), where + ": what was sent");
}

/// Elements of which the last one's h is beyond fp32 once it takes up the tile's mean, though none is before.
void check_large_sums(GpuEncoder& encoder, ElementCount elements, Report& report) {
    std::vector<float> gradient(elements, 1.0F);
    std::vector<float> sent(elements, 0.0F);
    const auto last = elements - 1;
    gradient[last] = 3.4e38F;
    gradient[last - 1] = kHuge;
    sent[last] = 3.39e38F;
    check_step(encoder, "delta | all | sign", gradient, sent, last, report);
    sent[last] = -1.0F;
    sent[last - 1] = 1.0F;
    check_step(encoder, "delta | all | sign", gradient, sent, std::nullopt, report);
}

void check_sender(const Options& options, Report& report) {
    auto made = GpuEncoder::make(options.device, {});
    if (!report.expect_ok(made.status(), "making an encoder")) return;
    auto& encoder = **made;
    for (const ElementCount elements : {ElementCount{2}, ElementCount{4098}, kChunkElements + 2})
        check_large_sums(encoder, elements, report);
    // Nothing is sent: h stays as it is, a zero's sign as well.
    std::vector<float> sent(5000, -0.0F);
    sent[7] = 0.25F;
    check_step(encoder, "delta | threshold(1000) | f32", std::vector<float>(5000, 1.0F), sent, std::nullopt, report);
    // One chunk is, another is not.
    std::vector<float> gradient(kChunkElements + 5, 1.0F);
    gradient[kChunkElements + 1] = 5000.0F;
    check_step(encoder, "delta | threshold(1000) | natural", gradient, std::vector<float>(gradient.size(), 0.5F),
               std::nullopt, report);
    report.expect(encoder.workspace_bytes() > 0, "the encoder tells its workspace");
}

/// Two nodes whose average has no place in what is kept, on as many devices as there are parts.
void check_receiver(std::vector<int> devices, Report& report) {
    auto made = GpuDecoder::make(devices, {});
    if (!report.expect_ok(made.status(), "making a decoder")) return;
    auto& decoder = **made;
    const ElementCount elements = devices.size() > 1 ? kChunkElements + 3 : 4099;
    const ElementCount bad = elements - 2;
    std::vector<float> values(elements, 0.5F);
    values[bad] = 1e38F;
    std::vector<codec::ChunkView> views;
    std::vector<Bytes> payloads;
    for (ElementCount first = 0; first < elements; first += kChunkElements)
        payloads.push_back(
            codec::build_exact_chunk(std::span(values).subspan(first, std::min(kChunkElements, elements - first))));
    for (std::uint32_t chunk = 0; chunk < payloads.size(); ++chunk) views.push_back({chunk, payloads[chunk]});
    const codec::Contribution contribution{1.0F, views};
    std::vector<codec::cuda::DeviceRange> ranges;
    if (devices.size() > 1) ranges = codec::cuda::split_over_devices({&elements, 1}, devices.size()).front();
    for (const float before : {1.0F, kHuge}) {
        std::vector<std::unique_ptr<Arrays>> arrays;
        std::vector<GpuDecodeBase> bases;
        for (std::size_t device = 0; device < devices.size(); ++device) {
            const auto count = ranges.empty() ? elements : ranges[device].elements;
            arrays.push_back(std::make_unique<Arrays>(decoder.stream(device), count, report));
            bases.push_back({arrays.back()->put(std::vector<float>(count, before)), arrays.back()->make()});
        }
        ElementCount bad_sum = elements;
        const codec::cuda::GpuDecodeRequest request{7,      3,     elements, {&contribution, 1}, {}, nullptr,
                                                    ranges, bases, &bad_sum};
        std::vector<Result<codec::DecodeResult>> answers(1, codec::DecodeResult{});
        if (!report.expect_ok(decoder.begin({&request, 1}), "decoding") ||
            !report.expect_ok(decoder.finish(answers), "decoding"))
            return;
        const bool is_good = before == 1.0F;
        report.expect(answers[0].is_ok() == is_good && bad_sum == (is_good ? elements : bad),
                      fmt::format("{} and {}: {}, element {} on {} GPUs", before, values[bad],
                                  answers[0].status().to_string(), bad_sum, devices.size()));
        if (!is_good)
            report.expect(answers[0].status().to_string() == codec::not_a_finite_sum().to_string(),
                          "in the CPU's words");
        for (std::size_t device = 0; device < devices.size(); ++device)
            report.expect(same(arrays[device]->read(bases[device].in),
                               std::vector<float>(ranges.empty() ? elements : ranges[device].elements, before)),
                          "what was kept stays");
    }
}

/// A node that sends nothing keeps every array that encoding has.
void check_kept(const Options& options, Report& report) {
    const auto stream = codec::cuda::Stream::make(options.device);
    if (!report.expect_ok(stream.status(), "making a stream")) return;
    const auto pipeline = parsed("momentum | delta | topk(0.1) | f32");
    constexpr ElementCount kElements = 4099;
    Arrays arrays(*stream, kElements, report);
    codec::StateView in;
    codec::StateView out;
    for (float* codec::StateView::*array :
         {&codec::StateView::residual, &codec::StateView::momentum, &codec::StateView::average}) {
        in.*array = arrays.put(std::vector<float>(kElements, 2.0F));
        out.*array = arrays.make();
    }
    report.expect_ok(codec::cuda::keep_state(*stream, pipeline, kElements, in, out), "keeping state");
    report.expect_ok(stream->synchronize(), "keeping state");
    const std::vector<float> kept(kElements, 2.0F);
    report.expect(same(arrays.read(out.residual), kept) && same(arrays.read(out.momentum), kept),
                  "what encoding keeps goes over");
    report.expect(same(arrays.read(out.average), std::vector<float>(kElements, -1.0F)), "averages do not");
}

void check_pipelines(const std::vector<int>& devices, std::span<const ElementCount> sizes, const Options& options,
                     Report& report) {
    auto encoder = GpuEncoder::make(devices, {});
    if (!report.expect_ok(encoder.status(), "making an encoder")) return;
    std::vector<EncodeCase> cases;
    std::size_t samples = 0;
    for (const char* text : {"delta | topk(0.05) | pow2", "delta | all | sign", "delta | all | f16",
                             "delta | threshold(2) | natural", "momentum(0.8) | delta | block_topk(0.1) | pow2 | rice",
                             "delta | rotate | all | dither", "delta | all | integer(100)", "delta | randk(0.2)",
                             "delta | all | minmax(4) | entropy", "delta | adaptive_random(0.05) | bf16"})
        for (const ElementCount elements : sizes)
            for (const DataKind kind : {DataKind::kGaussian, DataKind::kZero, DataKind::kNotANumber}) {
                if (kind != DataKind::kGaussian && elements > kChunkElements) continue;
                cases.push_back(make_case({text, parsed(text)}, elements, 1 + samples++ % 3, kind));
                cases.back().name += fmt::format(" on {} GPUs", devices.size());
                cases.back().offset_elements = samples % 5 == 0 ? 1 : 0;
                if (samples % 7 == 0) cases.back().types.assign(cases.back().input.samples.size(), ElementType::kBf16);
            }
    EncodeCases all(devices, report);
    for (unsigned step = 0; step < 3; ++step)
        if (!all.run_step(**encoder, cases, options.seed + 31 * step)) return;
}

}  // namespace

void check_delta(const Options& options, Report& report) {
    check_sender(options, report);
    check_receiver({options.device}, report);
    check_kept(options, report);
    constexpr std::array<ElementCount, 4> kSizes{1, 33, 4096, 4101};
    check_pipelines({options.device}, kSizes, options, report);
    constexpr std::array<ElementCount, 1> kOneMore{kChunkElements + 1};
    if (!options.is_small) check_pipelines({options.device}, kOneMore, options, report);
    if (device_count() < 2) return report.skip("differences on several GPUs: this host has one");
    check_receiver({1, 0}, report);
    check_pipelines({1, 0}, kOneMore, options, report);
}

}  // namespace gradsieve::gpu_check

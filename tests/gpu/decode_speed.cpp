// How fast the GPU decodes: per case the upload, the list kernel and the average kernel apart, by events, and a whole
// begin-to-finish by the host's clock; medians and spreads of 21 runs. Beside it the bandwidth of a device-to-device
// copy of the same run, counting what is read and written.
#include "codec/cuda/decode_batch.hpp"
#include "decode_harness.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace gradsieve::gpu_check {
namespace {

using codec::cuda::DecodeBatch;
using codec::cuda::GpuDecodeRequest;
using codec::cuda::GpuResult;

constexpr std::size_t kRuns = 21;
constexpr std::size_t kWarmUps = 3;

struct Times {
    double median_ms = 0, least_ms = 0, most_ms = 0;
};
Times times_of(std::vector<double> milliseconds) {
    std::ranges::sort(milliseconds);
    return {milliseconds[milliseconds.size() / 2], milliseconds.front(), milliseconds.back()};
}
std::string text_of(const Times& times) {
    return fmt::format("{:7.3f} ({:.3f} to {:.3f})", times.median_ms, times.least_ms, times.most_ms);
}

class Event {
public:
    Event() { require_cuda(cudaEventCreate(&event_), "making an event"); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    ~Event() { static_cast<void>(cudaEventDestroy(event_)); }
    void record(const codec::cuda::Stream& stream) {
        require_cuda(cudaEventRecord(event_, static_cast<cudaStream_t>(stream.handle())), "recording an event");
    }
    [[nodiscard]] double since(const Event& earlier) const {
        float milliseconds = 0;
        require_cuda(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "reading an event");
        return static_cast<double>(milliseconds);
    }

private:
    cudaEvent_t event_ = nullptr;
};

/// Bytes per second of a device-to-device copy, counting both sides.
double measure_copy(int device, ByteCount bytes, Report& report) {
    auto from = codec::cuda::DeviceMemory::make(device, bytes, "copy");
    auto to = codec::cuda::DeviceMemory::make(device, bytes, "copy");
    auto stream = codec::cuda::Stream::make(device);
    if (!report.expect_ok(from.status(), "copy") || !report.expect_ok(to.status(), "copy") ||
        !report.expect_ok(stream.status(), "copy"))
        return 1;
    const auto handle = static_cast<cudaStream_t>(stream->handle());
    require_cuda(cudaMemsetAsync(from->data(), 0x3C, bytes, handle), "filling memory");
    std::vector<double> milliseconds;
    Event begin;
    Event end;
    for (std::size_t run = 0; run < kRuns + kWarmUps; ++run) {
        begin.record(*stream);
        require_cuda(cudaMemcpyAsync(to->data(), from->data(), bytes, cudaMemcpyDeviceToDevice, handle), "copying");
        end.record(*stream);
        report.expect_ok(stream->synchronize(), "copying");
        if (run >= kWarmUps) milliseconds.push_back(end.since(begin));
    }
    const Times times = times_of(milliseconds);
    const double rate = 2e3 * static_cast<double>(bytes) / times.median_ms;
    report.figure(fmt::format("device-to-device copy of {} MB: {} ms, {:.2f} TB/s read and written", bytes / 1000000,
                              text_of(times), rate * 1e-12));
    return rate;
}

/// Tensors of one step with payloads of all nodes and one fp32 result each.
struct SpeedCase {
    std::string name;
    std::vector<ElementCount> sizes;
    std::string pipeline;
    std::size_t nodes = 2;
    bool has_base = false;  ///< averages are added to what is kept: 8 bytes per element more

    [[nodiscard]] std::size_t arrays() const { return has_base ? 3 : 1; }
};

class SpeedInput {
public:
    SpeedInput(const SpeedCase& speed_case, int device, const std::vector<float>& pool, Report& report)
        : chunks_(speed_case.sizes.size()),
          views_(chunks_.size()),
          contributions_(chunks_.size()),
          results_(chunks_.size()),
          bases_(chunks_.size()),
          bytes_per_element_(speed_case.has_base ? 12 : 4) {
        const auto pipeline = codec::parse_pipeline(speed_case.pipeline);
        if (!report.expect_ok(pipeline.status(), speed_case.name)) return;
        for (const ElementCount elements : speed_case.sizes) elements_ += elements;
        auto memory = codec::cuda::DeviceMemory::make(
            device, speed_case.arrays() * 4 * (elements_ + 64 * chunks_.size()), "results");
        if (!report.expect_ok(memory.status(), "results")) return;
        require_cuda(cudaMemset(memory->data(), 0, memory->size()), "clearing results");
        require_cuda(cudaDeviceSynchronize(), "clearing results");
        memory_ = std::move(*memory);
        for (auto& of_tensor : chunks_) of_tensor.resize(speed_case.nodes);
        in_parallel(chunks_.size() * speed_case.nodes, [&](std::size_t part) {
            const std::size_t tensor = part / speed_case.nodes;
            const std::size_t node = part % speed_case.nodes;
            const std::array<const float*, 1> samples = {pool.data() + 1000 * node};
            chunks_[tensor][node] = encode_on_cpu(*pipeline, speed_case.sizes[tensor], samples);
        });
        point(speed_case);
    }
    [[nodiscard]] std::span<const GpuDecodeRequest> requests() const { return requests_; }
    [[nodiscard]] ElementCount elements() const { return elements_; }
    [[nodiscard]] ByteCount payload_bytes() const { return payload_bytes_; }
    [[nodiscard]] ByteCount bytes_per_element() const { return bytes_per_element_; }

private:
    void point(const SpeedCase& speed_case) {
        ByteCount offset = 0;
        for (std::size_t tensor = 0; tensor < chunks_.size(); ++tensor) {
            views_[tensor].resize(speed_case.nodes);
            for (std::size_t node = 0; node < speed_case.nodes; ++node) {
                for (const auto& chunk : chunks_[tensor][node]) {
                    views_[tensor][node].push_back({chunk.chunk_index, chunk.bytes});
                    payload_bytes_ += chunk.bytes.size();
                }
                contributions_[tensor].push_back({1.0F / static_cast<float>(speed_case.nodes), views_[tensor][node]});
            }
            const ByteCount bytes = (4 * speed_case.sizes[tensor] + 255) / 256 * 256;
            results_[tensor] = {memory_.data() + offset, codec::cuda::ElementType::kF32, false};
            bases_[tensor] = {memory_.as<float>(offset + bytes), memory_.as<float>(offset + 2 * bytes)};
            offset += speed_case.arrays() * bytes;
            requests_.push_back(
                {tensor + 1, 1, speed_case.sizes[tensor], contributions_[tensor], {&results_[tensor], 1}, nullptr});
            if (speed_case.has_base) requests_.back().bases = {&bases_[tensor], 1};
        }
    }

    std::vector<std::vector<std::vector<CodedChunk>>> chunks_;  ///< by tensor, then by node
    std::vector<std::vector<std::vector<codec::ChunkView>>> views_;
    std::vector<std::vector<codec::Contribution>> contributions_;
    std::vector<GpuResult> results_;
    std::vector<codec::cuda::GpuDecodeBase> bases_;
    ByteCount bytes_per_element_ = 4;
    std::vector<GpuDecodeRequest> requests_;
    codec::cuda::DeviceMemory memory_;
    ElementCount elements_ = 0;
    ByteCount payload_bytes_ = 0;
};

struct StageTimes {
    std::vector<double> upload, lists, average, device;
};

/// Rounds follow each other, as they share their workspace.
StageTimes measure_stages(DecodeBatch& batch, Report& report) {
    StageTimes times;
    Event before;
    std::vector<Event> marks(1 + 2 * batch.plan().rounds().size());
    for (std::size_t run = 0; run < kRuns + kWarmUps; ++run) {
        before.record(batch.stream());
        report.expect_ok(batch.upload(), "upload");
        marks[0].record(batch.stream());
        std::size_t mark = 1;
        for (const auto& round : batch.plan().rounds()) {
            report.expect_ok(batch.read_lists(round), "lists");
            marks[mark++].record(batch.stream());
            report.expect_ok(batch.average(round), "average");
            marks[mark++].record(batch.stream());
        }
        report.expect_ok(batch.stream().synchronize(), "a decoded batch");
        if (run < kWarmUps) continue;
        double lists = 0;
        double average = 0;
        for (mark = 1; mark < marks.size(); mark += 2) {
            lists += marks[mark].since(marks[mark - 1]);
            average += marks[mark + 1].since(marks[mark]);
        }
        times.upload.push_back(marks[0].since(before));
        times.lists.push_back(lists);
        times.average.push_back(average);
        times.device.push_back(marks.back().since(marks[0]));
    }
    return times;
}

std::vector<double> measure_whole(codec::cuda::GpuDecoder& decoder, const SpeedInput& input, Report& report) {
    std::vector<double> milliseconds;
    std::vector<Result<codec::DecodeResult>> results(input.requests().size());
    for (std::size_t run = 0; run < kRuns + kWarmUps; ++run) {
        const auto begin = std::chrono::steady_clock::now();
        report.expect_ok(decoder.begin(input.requests()), "begin");
        report.expect_ok(decoder.finish(results), "finish");
        const auto end = std::chrono::steady_clock::now();
        for (const auto& result : results) report.expect_ok(result.status(), "a timed decode");
        if (run >= kWarmUps) milliseconds.push_back(std::chrono::duration<double, std::milli>(end - begin).count());
    }
    return milliseconds;
}

void measure_case(const SpeedCase& speed_case, int device, const std::vector<float>& pool, double copy_rate,
                  Report& report) {
    const SpeedInput input(speed_case, device, pool, report);
    DecodeBatch batch;
    if (!report.expect_ok(batch.open(device, 0), "decoder") ||
        !report.expect_ok(batch.prepare(input.requests()), speed_case.name))
        return;
    const StageTimes stages = measure_stages(batch, report);
    auto decoder = codec::cuda::GpuDecoder::make(device);
    if (!report.expect_ok(decoder.status(), "decoder")) return;
    const Times whole = times_of(measure_whole(**decoder, input, report));
    const Times on_device = times_of(stages.device);
    const auto bytes = static_cast<double>(input.bytes_per_element() * input.elements() + input.payload_bytes());
    report.figure(fmt::format(
        "{}\n    payloads {:.2f} MB; ms: upload {}, lists {}, average {}, both kernels {}, begin to "
        "finish {}\n    both kernels: {:.0f} G elements/s, {:.2f} of the copy's bandwidth "
        "({} B per element and the payloads); workspace {} MiB",
        speed_case.name, static_cast<double>(input.payload_bytes()) * 1e-6, text_of(times_of(stages.upload)),
        text_of(times_of(stages.lists)), text_of(times_of(stages.average)), text_of(on_device), text_of(whole),
        static_cast<double>(input.elements()) / on_device.median_ms * 1e-6,
        1e3 * bytes / on_device.median_ms / copy_rate, input.bytes_per_element(), batch.device_bytes() >> 20U));
}

/// Elements of the 161 parameters of a ResNet-50: 25,557,032 in all.
std::vector<ElementCount> resnet50_sizes() {
    std::vector<ElementCount> sizes = {64 * 3 * 49, 64, 64};
    ElementCount inputs = 64;
    constexpr std::array kBlocks{3, 4, 6, 3};
    for (std::size_t stage = 0; stage < kBlocks.size(); ++stage) {
        const ElementCount width = ElementCount{64} << stage;
        for (int block = 0; block < kBlocks[stage]; ++block) {
            sizes.insert(sizes.end(), {inputs * width, width, width, 9 * width * width, width, width, 4 * width * width,
                                       4 * width, 4 * width});
            if (block == 0) sizes.insert(sizes.end(), {inputs * 4 * width, 4 * width, 4 * width});
            inputs = 4 * width;
        }
    }
    sizes.insert(sizes.end(), {2048 * 1000, 1000});
    return sizes;
}

}  // namespace

void measure_decode(const Options& options, Report& report) {
    constexpr ElementCount kLarge = 103'000'000;
    const auto pool = make_gradient_pool(kLarge + 10000, options.seed);
    const double copy_rate = measure_copy(options.device, 4 * kLarge, report);
    const auto resnet = resnet50_sizes();
    ElementCount resnet_elements = 0;
    for (const ElementCount elements : resnet) resnet_elements += elements;
    const std::string sparse = "topk(0.01) | pow2(bits=4) | auto";
    const std::vector<SpeedCase> cases = {
        {"103 M, " + sparse + ", 2 nodes", {kLarge}, sparse, 2},
        {"103 M, " + sparse + ", 8 nodes", {kLarge}, sparse, 8},
        {"103 M, topk(0.1) | bf16, 2 nodes", {kLarge}, "topk(0.1) | bf16", 2},
        {"103 M, all | pow2(bits=4), 2 nodes", {kLarge}, "all | pow2(bits=4)", 2},
        {"103 M, all | pow2(bits=4) | raw32, 2 nodes", {kLarge}, "all | pow2(bits=4) | raw32", 2},
        {"103 M, all | sign, 2 nodes", {kLarge}, "all | sign", 2},
        {"103 M, rotate | all | sign, 2 nodes", {kLarge}, "rotate | all | sign", 2},
        {"103 M, all | minmax, 2 nodes", {kLarge}, "all | minmax", 2},
        {"103 M, all | integer(100), 2 nodes", {kLarge}, "all | integer(100)", 2},
        {"103 M, topk(0.01) | integer(100), 2 nodes", {kLarge}, "topk(0.01) | integer(100)", 2},
        {"103 M, " + sparse + ", 2 nodes, added to a base", {kLarge}, sparse, 2, true},
        {"103 M, all | sign, 2 nodes, added to a base", {kLarge}, "all | sign", 2, true},
        {"103 M, rotate | all | sign, 2 nodes, added to a base", {kLarge}, "rotate | all | sign", 2, true},
        {"103 M, all | bf16, 2 nodes", {kLarge}, "all | bf16", 2},
        {"103 M, all | f32, 2 nodes", {kLarge}, "all | f32", 2},
        {fmt::format("{} tensors of a ResNet-50, {}, 2 nodes", resnet.size(), sparse), resnet, sparse, 2},
        {fmt::format("the same {} elements as one tensor", resnet_elements), {resnet_elements}, sparse, 2},
        {"one tensor of 1,000, " + sparse + ", 2 nodes", {1000}, sparse, 2}};
    for (const SpeedCase& speed_case : cases) measure_case(speed_case, options.device, pool, copy_rate, report);
}

}  // namespace gradsieve::gpu_check

// Signatures of gradients in device memory against those of the CPU, bit for bit: alone and beside a pass, of any type
// and number of samples, on one card and shared by two, which reach each other's memory or get copies.
#include "codec/cuda/device_values.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "encode_cases.hpp"
#include "encode_pipelines.hpp"
#include "gpu_check.hpp"
#include "job_runs.hpp"
#include "similarity_sections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gradsieve::gpu_check {
namespace {

using codec::DataKind;
using codec::EncodeResult;
using codec::Signature;
using codec::cuda::DeviceMemory;
using codec::cuda::ElementType;
using codec::cuda::GpuEncodePart;
using codec::cuda::GpuEncoder;
using codec::cuda::GpuEncodeRequest;
using Values = std::vector<float>;

constexpr ElementCount kGroup = codec::kSignatureGroupElements;

/// An array on one of the devices, poisoned around and off a vector's boundary.
struct DeviceArray {
    DeviceMemory memory;
    const float* data = nullptr;
};

/// One tensor: what its samples are on the host and on the devices.
struct Signed {
    ElementCount elements = 0;
    std::vector<ElementType> types;
    std::vector<Values> host;
    std::vector<DeviceArray> arrays;
    std::vector<const float*> samples;
    std::vector<int> devices;
    std::vector<float> weights;
    std::vector<GpuEncodePart> parts;
    std::vector<DeviceMemory> states;

    [[nodiscard]] Signature expected(TensorId tensor) const {
        std::vector<const float*> on_host;
        for (const Values& values : host) on_host.push_back(values.data());
        return {tensor, on_host, weights, elements};
    }
};

bool same(const Signature& left, const Signature& right) {
    return std::memcmp(left.sums().data(), right.sums().data(), codec::kSignatureBytes) == 0;
}

class SignatureRun {
public:
    SignatureRun(const Options& options, Report& report, std::vector<int> devices, bool uses_peers)
        : options_(options), report_(report), devices_(std::move(devices)), uses_peers_(uses_peers) {}

    void run() {
        // Of one chunk at a time where samples are copied.
        auto made = GpuEncoder::make(devices_, {.staging_bytes = 1, .uses_peers = uses_peers_});
        if (!report_.expect_ok(made.status(), "an encoder")) return;
        encoder_ = std::move(*made);
        using enum ElementType;
        std::vector<Signed> tensors;
        const auto add = [&](ElementCount elements, std::vector<ElementType> types,
                             DataKind kind = DataKind::kGaussian) {
            tensors.push_back(draw(elements, std::move(types), kind, tensors.size()));
        };
        for (const ElementCount elements : {0U, 1U, 1023U, 1024U, 1025U}) add(elements, {kF32});
        add(kGroup - 1, {kF32, kF16});
        add(kGroup, {kBf16}, DataKind::kWideRange);
        add(kGroup + 1, {kF16, kBf16, kF32});
        add(9000, std::vector(11, kF32), DataKind::kNearMaximum);
        add(3 * kGroup + 77, {kF32}, DataKind::kSignedZeros);
        add(kChunkElements + 70'001, {kF32, kBf16}, DataKind::kHeavyTailed);
        if (!options_.is_small) add(5 * kChunkElements + 3, {kF32, kF32});
        if (is_broken_) return;
        check_alone(tensors);
        check_beside_passes(tensors);
    }

private:
    std::string what(const Signed& tensor, const char* how) const {
        return fmt::format("signature {}, {} elements, {} samples, {} devices, peers {}", how, tensor.elements,
                           tensor.host.size(), devices_.size(), uses_peers_);
    }
    const codec::cuda::Stream& stream_of(std::size_t device) const { return encoder_->stream(device); }

    DeviceMemory make(std::size_t device, ByteCount bytes) {
        auto made = DeviceMemory::make(devices_[device], bytes, "arrays of the test");
        if (!report_.expect_ok(made.status(), "device memory") ||
            !report_.expect_ok(codec::cuda::fill_bytes(stream_of(device), made->data(), bytes, 0xFF), "poison") ||
            !report_.expect_ok(stream_of(device).synchronize(), "poison")) {
            is_broken_ = true;
            return {};
        }
        return std::move(*made);
    }

    Signed draw(ElementCount elements, std::vector<ElementType> types, DataKind kind, std::size_t number) {
        Signed tensor;
        tensor.elements = elements;
        tensor.types = std::move(types);
        std::mt19937_64 random(options_.seed + 977 * number);
        float rest = 1;
        for (std::size_t sample = 0; sample < tensor.types.size() && !is_broken_; ++sample) {
            const std::size_t device = sample % devices_.size();
            const ElementType type = tensor.types[sample];
            auto values = codec::make_gradient(kind, elements, random);
            DeviceArray array{make(device, (elements + 2) * element_bytes(type)), nullptr};
            if (is_broken_) return tensor;
            auto* data = array.memory.data() + element_bytes(type);  // off a vector's boundary
            const auto& stream = stream_of(device);
            if (!report_.expect_ok(write_values(stream, values, data, type), "samples") ||
                !report_.expect_ok(read_values(stream, data, type, values), "samples"))
                is_broken_ = true;
            array.data = reinterpret_cast<const float*>(data);
            tensor.samples.push_back(array.data);
            tensor.devices.push_back(devices_[device]);
            tensor.arrays.push_back(std::move(array));
            tensor.host.push_back(std::move(values));
            tensor.weights.push_back(sample + 1 == tensor.types.size() ? rest : rest * 0.375F);
            rest -= tensor.weights.back();
        }
        const auto ranges = codec::cuda::split_over_devices({&elements, 1}, devices_.size()).front();
        for (std::size_t device = 0; device < devices_.size() && !is_broken_; ++device) {
            GpuEncodePart part{ranges[device], {}, {}};
            for (auto* state : {&part.in, &part.out}) {
                tensor.states.push_back(make(device, (ranges[device].elements + 1) * sizeof(float)));
                state->residual = tensor.states.back().as<float>();
            }
            if (!is_broken_)
                report_.expect_ok(codec::cuda::fill_bytes(stream_of(device), part.in.residual,
                                                          ranges[device].elements * sizeof(float), 0),
                                  "clearing");
            tensor.parts.push_back(part);
        }
        return tensor;
    }

    static GpuEncodeRequest request_of(const Signed& tensor, TensorId id) {
        GpuEncodeRequest asked;
        asked.request.tensor = id;
        asked.request.step = 1;
        asked.request.elements = tensor.elements;
        asked.request.samples = tensor.samples;
        asked.request.weights = tensor.weights;
        asked.sample_types = tensor.types;
        if (tensor.parts.size() == 1) {
            asked.request.in = tensor.parts.front().in;
            asked.request.out = tensor.parts.front().out;
            return asked;
        }
        asked.parts = tensor.parts;
        asked.sample_devices = tensor.devices;
        return asked;
    }

    void check_alone(const std::vector<Signed>& tensors) {
        std::vector<GpuEncodeRequest> requests;
        for (std::size_t number = 0; number < tensors.size(); ++number)
            requests.push_back(request_of(tensors[number], 50 + number));
        const auto seen = encoder_->sign(requests);
        if (!report_.expect_ok(seen.status(), "signing")) return;
        for (std::size_t number = 0; number < tensors.size(); ++number)
            report_.expect(same((*seen)[number], tensors[number].expected(50 + number)),
                           what(tensors[number], "alone"));
    }

    /// Every second tensor asks for one; what stands in front of the pass changes nothing.
    void check_beside_passes(const std::vector<Signed>& tensors) {
        std::vector<codec::Pipeline> pipelines;
        for (const char* text : {"similarity | topk(0.01) | pow2(bits=4) | auto",
                                 "similarity | compensate(gamma=0.5) | all | sign", "all | f32"})
            pipelines.push_back(parsed(text));
        std::vector<GpuEncodeRequest> requests;
        for (std::size_t number = 0; number < tensors.size(); ++number) {
            requests.push_back(request_of(tensors[number], 70 + number));
            requests.back().request.pipeline = &pipelines[number % 3];
            requests.back().wants_signature = number % 3 != 2;
        }
        std::vector<EncodeResult> results(requests.size());
        if (!report_.expect_ok(encoder_->encode(requests, results), "encoding")) return;
        for (std::size_t number = 0; number < tensors.size(); ++number) {
            const auto& seen = encoder_->signature(number);
            const bool is_wanted = requests[number].wants_signature && !results[number].non_finite;
            report_.expect(
                seen.has_value() == is_wanted && (!is_wanted || same(*seen, tensors[number].expected(70 + number))),
                what(tensors[number], "beside a pass"));
        }
        check_trouble(tensors);
    }

    /// What is not finite has none.
    void check_trouble(const std::vector<Signed>& tensors) {
        const auto bad = std::ranges::find_if(tensors, [](const Signed& tensor) { return tensor.elements == 1; });
        const Values not_a_number = {std::numeric_limits<float>::quiet_NaN()};
        const auto pipeline = parsed("similarity | all | f32");
        auto* data = const_cast<float*>(bad->samples.front());
        if (!report_.expect_ok(write_values(stream_of(0), not_a_number, data, ElementType::kF32), "a NaN")) return;
        GpuEncodeRequest request = request_of(*bad, 1);
        request.request.pipeline = &pipeline;
        request.wants_signature = true;
        EncodeResult result;
        if (!report_.expect_ok(encoder_->encode({&request, 1}, {&result, 1}), "encoding a NaN")) return;
        report_.expect(result.non_finite && !encoder_->signature(0), "a gradient that is not finite has no signature");
    }

    const Options& options_;
    Report& report_;
    const std::vector<int> devices_;
    const bool uses_peers_;
    std::unique_ptr<GpuEncoder> encoder_;
    bool is_broken_ = false;
};

}  // namespace

void check_similarity(const Options& options, Report& report) {
    SignatureRun(options, report, {options.device}, true).run();
    if (device_count() < 2) {
        report.skip("signatures on two GPUs: this host has one");
    } else {
        for (const bool uses_peers : {true, false}) SignatureRun(options, report, {0, 1}, uses_peers).run();
    }
    check_reuse(options, report);
}

}  // namespace gradsieve::gpu_check

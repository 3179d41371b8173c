#include "encode_cases.hpp"

#include "codec/cuda/runtime.hpp"
#include "codec/payload.hpp"
#include "host_work.hpp"

#include <algorithm>
#include <cstring>

namespace gradsieve::gpu_check {
namespace {

using codec::cuda::ElementType;

constexpr std::byte kPoison{0xC5};
constexpr std::size_t kGuardBytes = 256;
constexpr std::size_t kAlignment = 64;

/// Device addresses are offsets in the image until its memory is known.
const float* as_address(std::size_t offset) { return reinterpret_cast<const float*>(offset); }
std::size_t offset_of(const float* address, const std::byte* base) {
    return static_cast<std::size_t>(reinterpret_cast<const std::byte*>(address) - base);
}

}  // namespace

std::uint16_t half_bits(float value, ElementType type) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (type == ElementType::kBf16) return static_cast<std::uint16_t>(bits >> 16U);
    // Truncation is enough: the reference gets what the bits say.
    const std::uint32_t sign = (bits >> 16U) & 0x8000U;
    const int exponent = static_cast<int>((bits >> 23U) & 0xFFU) - 127 + 15;
    if (((bits >> 23U) & 0xFFU) == 0xFFU)
        return static_cast<std::uint16_t>(sign | 0x7C00U | ((bits & 0x7FFFFFU) != 0 ? 0x200U : 0U));
    if (exponent >= 31) return static_cast<std::uint16_t>(sign | 0x7BFFU);
    if (exponent > 0)
        return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(exponent) << 10U |
                                          ((bits >> 13U) & 0x3FFU));
    if (exponent < -10) return static_cast<std::uint16_t>(sign);
    return static_cast<std::uint16_t>(sign |
                                      (((bits & 0x7FFFFFU) | 0x800000U) >> static_cast<unsigned>(14 - exponent)));
}

float value_of_half(std::uint16_t bits, ElementType type) {
    if (type == ElementType::kBf16) return std::bit_cast<float>(std::uint32_t{bits} << 16U);
    const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16U;
    const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
    const std::uint32_t mantissa = bits & 0x3FFU;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | mantissa << 13U);
    if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112U) << 23U | mantissa << 13U);
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
}

void draw_inputs(EncodeCase& inout_case, std::uint64_t seed) {
    auto& input = inout_case.input;
    const auto fresh = codec::make_input(input.pipeline, input.elements, input.samples.size(), inout_case.kind, seed);
    input.samples = fresh.samples;
    for (std::size_t sample = 0; sample < inout_case.types.size(); ++sample) {
        if (inout_case.types[sample] == ElementType::kF32) continue;
        for (float& value : input.samples[sample])
            value = value_of_half(half_bits(value, inout_case.types[sample]), inout_case.types[sample]);
    }
    std::mt19937_64 random(seed ^ 0x5EC0DULL);
    for (auto& moments : input.second_moments) {
        moments = codec::make_gradient(inout_case.kind, input.elements, random);
        for (float& value : moments) value = value * value;
    }
}

std::size_t EncodeCases::place_array(const void* data, std::size_t bytes, std::size_t offset_bytes) {
    const std::size_t begin = (image_.size() + kGuardBytes + kAlignment - 1) / kAlignment * kAlignment + offset_bytes;
    image_.resize(begin + bytes + kGuardBytes, kPoison);
    if (data != nullptr && bytes > 0) std::memcpy(image_.data() + begin, data, bytes);
    return begin;
}

void EncodeCases::place(const EncodeCase& encode_case, Placed& ret_placed) {
    const auto& input = encode_case.input;
    const std::size_t offset = encode_case.offset_elements;
    const auto place_floats = [&](const std::vector<float>& values) {
        return as_address(place_array(values.data(), values.size() * sizeof(float), offset * sizeof(float)));
    };
    for (std::size_t sample = 0; sample < input.samples.size(); ++sample) {
        if (encode_case.types.empty() || encode_case.types[sample] == ElementType::kF32) {
            ret_placed.samples.push_back(place_floats(input.samples[sample]));
            continue;
        }
        std::vector<std::uint16_t> halves;
        for (const float value : input.samples[sample]) halves.push_back(half_bits(value, encode_case.types[sample]));
        ret_placed.samples.push_back(as_address(place_array(halves.data(), halves.size() * 2, offset * 2)));
    }
    for (const auto& moments : input.second_moments) ret_placed.moments.push_back(place_floats(moments));
    const auto place_state = [&](const std::vector<float>& before, float*& ret_in, float*& ret_out) {
        if (before.empty()) return;
        ret_in = const_cast<float*>(place_floats(before));
        ret_out =
            const_cast<float*>(as_address(place_array(nullptr, before.size() * sizeof(float), offset * sizeof(float))));
    };
    place_state(encode_case.state.residual, ret_placed.in.residual, ret_placed.out.residual);
    place_state(encode_case.state.variance, ret_placed.in.variance, ret_placed.out.variance);
}

bool EncodeCases::run_step(codec::cuda::GpuEncoder& encoder, std::span<EncodeCase> cases, std::uint64_t seed) {
    std::vector<codec::reference::Output> expected(cases.size());
    on_all_cores(cases.size(), [&](std::size_t at) {
        draw_inputs(cases[at], random_bits(seed, at));
        expected[at] = codec::reference::encode(cases[at].input, cases[at].state);
    });
    image_.clear();
    std::vector<Placed> placed(cases.size());
    for (std::size_t at = 0; at < cases.size(); ++at) place(cases[at], placed[at]);
    image_.resize(image_.size() + kGuardBytes, kPoison);
    if (memory_.size() < image_.size()) {
        memory_ = {};
        auto memory = codec::cuda::DeviceMemory::make(options_.device, image_.size(), "arrays of the test");
        if (!report_.expect_ok(memory.status(), "device memory of the test")) return false;
        memory_ = std::move(*memory);
    }
    const auto move = [&](auto*& address) {
        if (address != nullptr) address = memory_.as<float>(reinterpret_cast<std::size_t>(address));
    };
    std::vector<codec::cuda::GpuEncodeRequest> requests(cases.size());
    for (std::size_t at = 0; at < cases.size(); ++at) {
        for (auto*& sample : placed[at].samples) move(sample);
        for (auto*& moments : placed[at].moments) move(moments);
        move(placed[at].in.residual);
        move(placed[at].in.variance);
        move(placed[at].out.residual);
        move(placed[at].out.variance);
        EncodeCase& encode_case = cases[at];
        codec::EncodeRequest& request = requests[at].request;
        request.pipeline = &encode_case.input.pipeline;
        request.tensor = tensor_id("tensor");
        request.step = 1;
        request.elements = encode_case.input.elements;
        request.samples = placed[at].samples;
        request.weights = encode_case.input.weights;
        request.second_moments = placed[at].moments;
        request.batch_samples = encode_case.input.batch_samples;
        request.rescale = encode_case.input.rescale;
        request.selection_hint = &encode_case.hint;
        request.in = placed[at].in;
        request.out = placed[at].out;
        requests[at].sample_types = encode_case.types;
    }
    std::vector<codec::EncodeResult> results(cases.size());
    const auto copied = [&](const char* doing, cudaError_t error) {
        return report_.expect_ok(codec::cuda::status_of(error, doing), doing);
    };
    after_.resize(image_.size());
    if (!copied("copying inputs", cudaMemcpy(memory_.data(), image_.data(), image_.size(), cudaMemcpyHostToDevice)) ||
        !report_.expect_ok(encoder.encode(requests, results), "encoding a batch") ||
        !copied("copying outputs", cudaMemcpy(after_.data(), memory_.data(), image_.size(), cudaMemcpyDeviceToHost)))
        return false;
    for (std::size_t at = 0; at < cases.size(); ++at)
        check(cases[at], placed[at], std::move(results[at]), expected[at]);
    report_.expect(image_ == after_,
                   "nothing but the outputs changed in the memory of a batch beginning with " + cases.front().name);
    return true;
}

/// Compares one output, then makes it as it was, so that the rest of the memory can be compared at once.
void EncodeCases::check_array(const EncodeCase& encode_case, const char* name, const float* array,
                              const std::vector<float>& expected) {
    if (array == nullptr) return;
    const std::size_t at = offset_of(array, memory_.data());
    std::vector<float> seen(expected.size());
    std::memcpy(seen.data(), after_.data() + at, seen.size() * sizeof(float));
    const auto same = codec::same_bits(seen, expected);
    report_.expect(static_cast<bool>(same), encode_case.name + ": " + name + ": " + same.message());
    std::memcpy(after_.data() + at, image_.data() + at, seen.size() * sizeof(float));
}

void EncodeCases::check(EncodeCase& inout_case, const Placed& placed, codec::EncodeResult result,
                        const codec::reference::Output& expected) {
    // Payloads, counts and locations; the state is compared where it lies.
    const auto same = codec::equals_reference({expected.state, std::move(result)}, expected);
    report_.expect(static_cast<bool>(same), inout_case.name + ": " + same.message());
    if (expected.non_finite) {
        // Unspecified outputs; the state stays as it was.
        const auto forget = [&](const float* array, std::size_t count) {
            if (array == nullptr) return;
            const std::size_t at = offset_of(array, memory_.data());
            std::memcpy(after_.data() + at, image_.data() + at, count * sizeof(float));
        };
        forget(placed.out.residual, inout_case.state.residual.size());
        forget(placed.out.variance, inout_case.state.variance.size());
        return;
    }
    check_array(inout_case, "residual", placed.out.residual, expected.state.residual);
    check_array(inout_case, "variance", placed.out.variance, expected.state.variance);
    inout_case.state = expected.state;
}

}  // namespace gradsieve::gpu_check

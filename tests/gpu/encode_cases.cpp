#include "encode_cases.hpp"

#include "codec/cuda/runtime.hpp"
#include "codec/payload.hpp"
#include "host_work.hpp"

#include <algorithm>
#include <cstring>

namespace gradsieve::gpu_check {
namespace {

/// A batch of one tensor that is not to be cut.
constexpr std::array<std::size_t, 1> kFirst{0};

using codec::cuda::ElementType;

constexpr std::byte kPoison{0xC5};
constexpr std::size_t kGuardBytes = 256;
constexpr std::size_t kAlignment = 64;

/// Until memory is known, an address is an offset in a device's image, with the device's place above it.
constexpr unsigned kPlaceShift = 48;
const float* as_address(std::size_t device, std::size_t offset) {
    return reinterpret_cast<const float*>(device << kPlaceShift | offset);
}
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

const float* EncodeCases::place_array(std::size_t device, const void* data, std::size_t bytes,
                                      std::size_t offset_bytes) {
    auto& image = memories_[device].image;
    const std::size_t begin = (image.size() + kGuardBytes + kAlignment - 1) / kAlignment * kAlignment + offset_bytes;
    image.resize(begin + bytes + kGuardBytes, kPoison);
    if (data != nullptr && bytes > 0) std::memcpy(image.data() + begin, data, bytes);
    return as_address(device, begin);
}

void EncodeCases::place_state(const EncodeCase& encode_case, std::size_t device,
                              codec::cuda::GpuEncodePart& inout_part) {
    const auto& range = inout_part.range;
    const std::size_t offset_bytes = encode_case.offset_elements * sizeof(float);
    const auto place = [&](const std::vector<float>& before, float*& ret_in, float*& ret_out) {
        if (before.empty()) return;
        const std::size_t bytes = range.elements * sizeof(float);
        ret_in = const_cast<float*>(place_array(device, before.data() + range.first, bytes, offset_bytes));
        ret_out = const_cast<float*>(place_array(device, nullptr, bytes, offset_bytes));
    };
    place(encode_case.state.residual, inout_part.in.residual, inout_part.out.residual);
    place(encode_case.state.variance, inout_part.in.variance, inout_part.out.variance);
    place(encode_case.state.momentum, inout_part.in.momentum, inout_part.out.momentum);
}

void EncodeCases::place(const EncodeCase& encode_case, Placed& inout_placed) {
    const auto& input = encode_case.input;
    const std::size_t offset = encode_case.offset_elements;
    for (std::size_t sample = 0; sample < input.samples.size(); ++sample) {
        const std::size_t device = sample % devices_.size();
        const auto& values = input.samples[sample];
        inout_placed.sample_devices.push_back(devices_[device]);
        if (encode_case.types.empty() || encode_case.types[sample] == ElementType::kF32) {
            inout_placed.samples.push_back(
                place_array(device, values.data(), values.size() * sizeof(float), offset * sizeof(float)));
            continue;
        }
        std::vector<std::uint16_t> halves;
        for (const float value : values) halves.push_back(half_bits(value, encode_case.types[sample]));
        inout_placed.samples.push_back(place_array(device, halves.data(), halves.size() * 2, offset * 2));
    }
    for (const auto& moments : input.second_moments) {
        const std::size_t device = inout_placed.moments.size() % devices_.size();
        inout_placed.moment_devices.push_back(devices_[device]);
        inout_placed.moments.push_back(
            place_array(device, moments.data(), moments.size() * sizeof(float), offset * sizeof(float)));
    }
    for (std::size_t device = 0; device < devices_.size(); ++device)
        place_state(encode_case, device, inout_placed.parts[device]);
}

template <typename Pointer>
void EncodeCases::move_to_device(Pointer& inout_address) const {
    if (inout_address == nullptr) return;
    const auto address = reinterpret_cast<std::uintptr_t>(inout_address);
    const auto& memory = memories_[address >> kPlaceShift].device;
    inout_address = memory.as<float>(address & ((std::uintptr_t{1} << kPlaceShift) - 1));
}

bool EncodeCases::upload() {
    for (std::size_t device = 0; device < devices_.size(); ++device) {
        auto& memory = memories_[device];
        memory.image.resize(memory.image.size() + kGuardBytes, kPoison);
        memory.after.resize(memory.image.size());
        if (memory.device.size() < memory.image.size()) {
            memory.device = {};
            auto made = codec::cuda::DeviceMemory::make(devices_[device], memory.image.size(), "arrays of the test");
            if (!report_.expect_ok(made.status(), "device memory of the test")) return false;
            memory.device = std::move(*made);
        }
        const auto error =
            cudaMemcpy(memory.device.data(), memory.image.data(), memory.image.size(), cudaMemcpyHostToDevice);
        if (!report_.expect_ok(codec::cuda::status_of(error, "copying inputs"), "copying inputs")) return false;
        // A copy from pageable memory returns before its bytes have arrived, and the encoder's stream does not wait.
        if (!report_.expect_ok(codec::cuda::status_of(cudaDeviceSynchronize(), "copying inputs"), "copying inputs"))
            return false;
    }
    return true;
}

bool EncodeCases::download() {
    for (auto& memory : memories_) {
        const auto error =
            cudaMemcpy(memory.after.data(), memory.device.data(), memory.image.size(), cudaMemcpyDeviceToHost);
        if (!report_.expect_ok(codec::cuda::status_of(error, "copying outputs"), "copying outputs")) return false;
    }
    return true;
}

codec::cuda::GpuEncodeRequest EncodeCases::request_of(EncodeCase& encode_case, const Placed& placed) const {
    codec::cuda::GpuEncodeRequest gpu_request;
    codec::EncodeRequest& request = gpu_request.request;
    request.pipeline = &encode_case.input.pipeline;
    request.tensor = encode_case.input.tensor;
    request.step = encode_case.input.step;
    request.random_seed = encode_case.input.random_seed;
    request.selection_seed = encode_case.input.selection_seed;
    request.elements = encode_case.input.elements;
    request.samples = placed.samples;
    request.weights = encode_case.input.weights;
    request.node_count = encode_case.input.node_count;
    request.second_moments = placed.moments;
    request.batch_samples = encode_case.input.batch_samples;
    request.rescale = encode_case.input.rescale;
    request.selection_hint = &encode_case.hint;
    gpu_request.sample_types = encode_case.types;
    if (devices_.size() > 1) {
        gpu_request.parts = placed.parts;
        gpu_request.sample_devices = placed.sample_devices;
        gpu_request.moment_devices = placed.moment_devices;
        return gpu_request;
    }
    request.in = placed.parts.front().in;
    request.out = placed.parts.front().out;
    return gpu_request;
}

bool EncodeCases::run_step(codec::cuda::GpuEncoder& encoder, std::span<EncodeCase> cases, std::uint64_t seed) {
    std::vector<codec::reference::Output> expected(cases.size());
    on_all_cores(cases.size(), [&](std::size_t at) {
        draw_inputs(cases[at], random_bits(seed, at));
        expected[at] = codec::reference::encode(cases[at].input, cases[at].state);
    });
    for (auto& memory : memories_) memory.image.clear();
    std::vector<Placed> placed(cases.size());
    for (std::size_t at = 0; at < cases.size(); ++at) {
        // Each by itself, so that every tensor of more than a chunk is shared.
        const auto ranges = codec::cuda::split_over_devices(
            {&cases[at].input.elements, 1}, devices_.size(),
            std::span(kFirst).first(codec::has_local_clip(cases[at].input.pipeline) ? 1 : 0));
        for (const auto& range : ranges.front()) placed[at].parts.push_back({range, {}, {}});
        place(cases[at], placed[at]);
    }
    if (!upload()) return false;
    std::vector<codec::cuda::GpuEncodeRequest> requests;
    for (std::size_t at = 0; at < cases.size(); ++at) {
        for (auto*& sample : placed[at].samples) move_to_device(sample);
        for (auto*& moments : placed[at].moments) move_to_device(moments);
        for (auto& part : placed[at].parts)
            for (auto* state : {&part.in, &part.out}) {
                move_to_device(state->residual);
                move_to_device(state->variance);
                move_to_device(state->momentum);
            }
        requests.push_back(request_of(cases[at], placed[at]));
    }
    std::vector<codec::EncodeResult> results(cases.size());
    if (!report_.expect_ok(encoder.encode(requests, results), "encoding a batch") || !download()) return false;
    for (std::size_t at = 0; at < cases.size(); ++at)
        check(cases[at], placed[at], std::move(results[at]), expected[at]);
    for (EncodeCase& one : cases) ++one.input.step;
    for (const auto& memory : memories_)
        report_.expect(memory.image == memory.after,
                       "nothing but the outputs changed in the memory of a batch beginning with " + cases.front().name);
    return true;
}

/// Makes an output as it was, so that the rest of the memory can be compared at once.
void EncodeCases::forget(std::size_t device, const float* array, std::size_t elements) {
    if (array == nullptr) return;
    auto& memory = memories_[device];
    const std::size_t at = offset_of(array, memory.device.data());
    std::memcpy(memory.after.data() + at, memory.image.data() + at, elements * sizeof(float));
}

/// Compares one output, then forgets it.
void EncodeCases::check_array(const EncodeCase& encode_case, const std::string& name, std::size_t device,
                              const float* array, std::span<const float> expected) {
    if (array == nullptr || expected.empty()) return;
    const auto& memory = memories_[device];
    std::vector<float> seen(expected.size());
    std::memcpy(seen.data(), memory.after.data() + offset_of(array, memory.device.data()), seen.size() * sizeof(float));
    const auto same = codec::same_bits(seen, std::vector<float>(expected.begin(), expected.end()));
    report_.expect(static_cast<bool>(same), encode_case.name + ": " + name + ": " + same.message());
    forget(device, array, expected.size());
}

void EncodeCases::check(EncodeCase& inout_case, const Placed& placed, codec::EncodeResult result,
                        const codec::reference::Output& expected) {
    // Payloads, counts and locations; the state is compared where it lies.
    const auto same = codec::equals_reference({expected.state, std::move(result)}, expected);
    report_.expect(static_cast<bool>(same), inout_case.name + ": " + same.message());
    for (std::size_t device = 0; device < devices_.size(); ++device) {
        const auto& part = placed.parts[device];
        if (expected.non_finite) {
            // Unspecified outputs; the state stays as it was.
            forget(device, part.out.residual, part.range.elements);
            forget(device, part.out.variance, part.range.elements);
            forget(device, part.out.momentum, part.range.elements);
            continue;
        }
        const auto range_of = [&](const std::vector<float>& whole) {
            return std::span(whole).subspan(whole.empty() ? 0 : part.range.first,
                                            whole.empty() ? 0 : part.range.elements);
        };
        check_array(inout_case, "residual", device, part.out.residual, range_of(expected.state.residual));
        check_array(inout_case, "variance", device, part.out.variance, range_of(expected.state.variance));
        check_array(inout_case, "momentum", device, part.out.momentum, range_of(expected.state.momentum));
    }
    if (!expected.non_finite) inout_case.state = expected.state;
}

}  // namespace gradsieve::gpu_check

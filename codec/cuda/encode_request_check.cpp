#include "codec/cuda/encode_batch.hpp"
#include "codec/encoder_check.hpp"
#include "codec/pipeline.hpp"
#include "codec/state_arrays.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {
namespace {

/// Elements are numbered with 32 bits in the kernels.
constexpr ElementCount kMostElements = ~std::uint32_t{0};

Status invalid(std::string text) { return {StatusCode::kInvalidArgument, std::move(text)}; }

/// `alignment`: a power of two.
bool is_at(const void* array, std::size_t alignment) {
    return (reinterpret_cast<std::uintptr_t>(array) & (alignment - 1)) == 0;
}

Status misaligned(const void* array, std::size_t alignment, const char* name) {
    const auto address = reinterpret_cast<std::uintptr_t>(array);
    return invalid(std::string(name) + ": an address " + std::to_string(address % alignment) +
                   " bytes off; allowed are multiples of " + std::to_string(alignment) +
                   ", an element's size; pass the array's own start");
}

Status check_state_alignment(const StateView& in, const StateView& out) {
    for (const StateArray& array : state_arrays())
        for (const StateView* view : {&in, &out})
            if (!is_at(view->*array.values, 4)) return misaligned(view->*array.values, 4, "state");
    return {};
}

Status check_devices(std::span<const int> devices, std::size_t arrays, const char* name) {
    if (devices.empty() || devices.size() == arrays) return {};
    return invalid(std::string(name) + ": " + std::to_string(devices.size()) + " for " + std::to_string(arrays) +
                   " arrays; allowed is one each, or none; pass them all");
}

Status check_samples(const GpuEncodeRequest& gpu_request) {
    const EncodeRequest& request = gpu_request.request;
    const auto types = gpu_request.sample_types;
    if (!types.empty() && types.size() != request.samples.size()) {
        return invalid("sample types: " + std::to_string(types.size()) + " for " +
                       std::to_string(request.samples.size()) +
                       " samples; allowed is one per sample, or none if all are fp32; pass them all");
    }
    for (std::size_t sample = 0; sample < request.samples.size(); ++sample) {
        const ElementType type = types.empty() ? ElementType::kF32 : types[sample];
        if (type > ElementType::kBf16) {
            return invalid("type of sample " + std::to_string(sample) + ": " +
                           std::to_string(static_cast<unsigned>(type)) +
                           "; allowed are 0 (fp32), 1 (fp16), 2 (bf16); pass one of them");
        }
        if (!is_at(request.samples[sample], element_bytes(type)))
            return misaligned(request.samples[sample], element_bytes(type), "sample");
    }
    for (const float* moments : request.second_moments)
        if (!is_at(moments, 4)) return misaligned(moments, 4, "second moments");
    GRADSIEVE_TRY(check_devices(gpu_request.sample_devices, request.samples.size(), "sample devices"));
    return check_devices(gpu_request.moment_devices, request.second_moments.size(), "second moments' devices");
}

/// Each part is checked as a tensor of its own, so that every device has its state.
Status check_parts(const GpuEncodeRequest& gpu_request, std::size_t device_count) {
    if (gpu_request.parts.size() != device_count)
        return invalid("parts: " + std::to_string(gpu_request.parts.size()) + " for " + std::to_string(device_count) +
                       " devices; allowed is one each; cut the tensor with split_over_devices");
    const auto has_elements = [](const GpuEncodePart& part) { return part.range.elements > 0; };
    const auto filled = std::ranges::count_if(gpu_request.parts, has_elements);
    if (gpu_request.request.pipeline != nullptr && has_local_clip(*gpu_request.request.pipeline) && filled > 1)
        return invalid("parts: " + std::to_string(filled) +
                       " with elements before momentum(clip=..); allowed is one, " +
                       "since a norm is one device's; let split_over_devices leave the tensor whole");
    ElementCount next = 0;
    for (const GpuEncodePart& part : gpu_request.parts) {
        const bool is_at_chunk = part.range.first % kChunkElements == 0 || part.range.elements == 0;
        if (part.range.first != next || !is_at_chunk)
            return invalid("a part from element " + std::to_string(part.range.first) + "; allowed is " +
                           std::to_string(next) + ", where the one before ends, and a chunk's start; cut the tensor " +
                           "with split_over_devices");
        next = part.range.end();
        EncodeRequest request = gpu_request.request;
        request.elements = part.range.elements;
        request.in = part.in;
        request.out = part.out;
        GRADSIEVE_TRY(check_encode_request(request));
    }
    if (next == gpu_request.request.elements) return {};
    return invalid("parts: " + std::to_string(next) + " elements of " + std::to_string(gpu_request.request.elements) +
                   "; allowed is the whole tensor; cut it with split_over_devices");
}

}  // namespace

Status check_gpu_request(const GpuEncodeRequest& gpu_request, std::size_t device_count) {
    const EncodeRequest& request = gpu_request.request;
    if (request.pipeline != nullptr && has_phases(*request.pipeline))
        return invalid("codec '" + canonical_text(*request.pipeline, Knobs::kKeep) +
                       "', whose steps have two phases, on a device; allowed is its first pass; encode first_pass, and "
                       "see gpu_phases.hpp");
    if (request.pipeline != nullptr) GRADSIEVE_TRY(check_scope(gpu_request));
    GRADSIEVE_TRY(gpu_request.parts.empty() ? check_encode_request(request) : check_parts(gpu_request, device_count));
    if (request.elements > kMostElements) {
        return invalid("elements: " + std::to_string(request.elements) + "; allowed on a GPU are at most " +
                       std::to_string(kMostElements) + "; split the tensor");
    }
    if (reads_samples(gpu_request)) GRADSIEVE_TRY(check_samples(gpu_request));
    for (const GpuEncodePart& part : gpu_request.parts) GRADSIEVE_TRY(check_state_alignment(part.in, part.out));
    return gpu_request.parts.empty() ? check_state_alignment(request.in, request.out) : Status();
}

}  // namespace gradsieve::codec::cuda

#include "codec/cuda/encode_batch.hpp"
#include "codec/encoder_check.hpp"

namespace gradsieve::codec::cuda {
namespace {

/// Elements are numbered with 32 bits in the kernels.
constexpr ElementCount kMostElements = ~std::uint32_t{0};

Status invalid(std::string text) { return {StatusCode::kInvalidArgument, std::move(text)}; }

Status check_alignment(const void* array, std::size_t alignment, const char* name) {
    const auto address = reinterpret_cast<std::uintptr_t>(array);
    if ((address & (alignment - 1)) == 0) return {};  // a power of two
    return invalid(std::string(name) + ": an address " + std::to_string(address % alignment) +
                   " bytes off; allowed are multiples of " + std::to_string(alignment) +
                   ", an element's size; pass the array's own start");
}

std::size_t bytes_of(ElementType type) { return type == ElementType::kF32 ? 4 : 2; }

}  // namespace

Status check_gpu_request(const GpuEncodeRequest& gpu_request) {
    const EncodeRequest& request = gpu_request.request;
    GRADSIEVE_TRY(check_encode_request(request));
    if (request.elements > kMostElements) {
        return invalid("elements: " + std::to_string(request.elements) + "; allowed on a GPU are at most " +
                       std::to_string(kMostElements) + "; split the tensor");
    }
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
        GRADSIEVE_TRY(check_alignment(request.samples[sample], bytes_of(type), "sample"));
    }
    for (const float* moments : request.second_moments) GRADSIEVE_TRY(check_alignment(moments, 4, "second moments"));
    for (const float* array : {request.in.residual, request.in.variance, request.out.residual, request.out.variance}) {
        GRADSIEVE_TRY(check_alignment(array, 4, "state"));
    }
    return {};
}

}  // namespace gradsieve::codec::cuda

#include "decode_base.hpp"

#include "codec/difference.hpp"
#include "decode_harness.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace gradsieve::gpu_check {
namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr std::byte kPoison{0xA5};

}  // namespace

DecodeBase::DecodeBase(ElementCount elements, std::vector<codec::cuda::DeviceRange> ranges,
                       std::span<const int> devices, std::size_t variant)
    : before_(make_gradient_pool(elements, variant)), after_(elements) {
    if (ranges.empty()) ranges.push_back({0, elements});
    for (std::size_t device = 0; device < ranges.size(); ++device) {
        Part part;
        part.range = ranges[device];
        const std::size_t bytes = (part.range.elements * sizeof(float) + 63) / 64 * 64;
        part.in = kGuardBytes + variant % 4 * sizeof(float);
        part.out = part.in + bytes + kGuardBytes + variant / 4 % 2 * sizeof(float);
        auto made = codec::cuda::DeviceMemory::make(devices[device], part.out + bytes + kGuardBytes, "averages");
        require_cuda(made.is_ok() ? cudaSuccess : cudaErrorMemoryAllocation, "making averages of the check");
        part.memory = std::move(*made);
        bases_.push_back({part.memory.as<float>(part.in), part.memory.as<float>(part.out)});
        parts_.push_back(std::move(part));
    }
}

std::span<const codec::cuda::GpuDecodeBase> DecodeBase::upload() {
    for (const Part& part : parts_) {
        std::vector<std::byte> image(part.memory.size(), kPoison);
        if (part.range.elements > 0)
            std::memcpy(image.data() + part.in, before_.data() + part.range.first, part.range.elements * sizeof(float));
        require_cuda(cudaMemcpy(part.memory.data(), image.data(), image.size(), cudaMemcpyHostToDevice),
                     "writing averages");
    }
    require_cuda(cudaDeviceSynchronize(), "writing averages");
    return bases_;
}

Result<codec::DecodeResult> DecodeBase::decode_on_cpu(Step step, std::span<const codec::Contribution> contributions,
                                                      codec::ResultTensor& inout_result) {
    return codec::decode_differences(step, contributions, before_.data(), after_.data(), inout_result);
}

void DecodeBase::compare(const std::string& where, bool is_decoded, Report& report) {
    for (const Part& part : parts_) {
        std::vector<std::byte> expected(part.memory.size(), kPoison);
        std::vector<std::byte> seen(part.memory.size());
        require_cuda(cudaMemcpy(seen.data(), part.memory.data(), seen.size(), cudaMemcpyDeviceToHost),
                     "reading averages");
        const std::size_t bytes = part.range.elements * sizeof(float);
        if (bytes > 0) {
            std::memcpy(expected.data() + part.in, before_.data() + part.range.first, bytes);
            if (is_decoded)
                std::memcpy(expected.data() + part.out, after_.data() + part.range.first, bytes);
            else  // unspecified
                std::memcpy(expected.data() + part.out, seen.data() + part.out, bytes);
        }
        report.expect(seen == expected, where + ": the averages that are kept differ, or something beside them");
    }
    if (is_decoded) std::swap(before_, after_);
}

}  // namespace gradsieve::gpu_check

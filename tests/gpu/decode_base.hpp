// What averages of a tensor are added to (delta), on both sides: in host memory for the CPU's decoder, and in each
// device's memory, between guard zones, for the GPU's. Threads only inside a call.
#pragma once

#include "codec/cuda/gpu_decoder.hpp"
#include "gpu_check.hpp"

#include <string>
#include <vector>

namespace gradsieve::gpu_check {

class DecodeBase {
public:
    /// Near normal numbers to begin with. `ranges`: of the devices; empty: the first one has all. `variant`: of the
    /// arrays' addresses.
    DecodeBase(ElementCount elements, std::vector<codec::cuda::DeviceRange> ranges, std::span<const int> devices,
               std::size_t variant);

    /// What it is before the step, written to the devices; what it becomes is poisoned there. Good until the next call.
    [[nodiscard]] std::span<const codec::cuda::GpuDecodeBase> upload();
    [[nodiscard]] Result<codec::DecodeResult> decode_on_cpu(Step step,
                                                            std::span<const codec::Contribution> contributions,
                                                            codec::ResultTensor& inout_result);
    /// After both; a step that was refused leaves it as it was.
    void compare(const std::string& where, bool is_decoded, Report& report);

    /// Of the next step; to make sums that are not finite.
    [[nodiscard]] std::vector<float>& before() noexcept { return before_; }

private:
    struct Part {
        codec::cuda::DeviceRange range;
        codec::cuda::DeviceMemory memory;
        std::size_t in = 0, out = 0;  ///< bytes
    };
    std::vector<float> before_, after_;
    std::vector<Part> parts_;
    std::vector<codec::cuda::GpuDecodeBase> bases_;
};

}  // namespace gradsieve::gpu_check

// Tensors to encode on a GPU in one batch, side by side in one piece of device memory: inputs, both generations of
// state, and guards between all arrays, poisoned before each step. What comes back is compared whole with what the slow
// reference says, so that a write anywhere else shows.
#pragma once

#include "codec/cuda/gpu_encoder.hpp"
#include "gpu_check.hpp"
#include "tests/codec/encoder_harness.hpp"

namespace gradsieve::gpu_check {

/// One tensor, over several steps.
struct EncodeCase {
    std::string name;
    codec::reference::Input input;
    codec::DataKind kind = codec::DataKind::kGaussian;
    codec::reference::State state;
    std::vector<codec::cuda::ElementType> types;  ///< empty: all fp32; the input's samples are such numbers then
    std::size_t offset_elements = 0;              ///< of every array from a 64-byte boundary
    std::uint32_t hint = 0;                       ///< the GPU's
};

/// Fresh samples (and moments) of the case's kind.
void draw_inputs(EncodeCase& inout_case, std::uint64_t seed);

class EncodeCases {
public:
    EncodeCases(const Options& options, Report& report) : options_(options), report_(report) {}
    /// Encodes all cases as one batch, compares, and carries the state. Returns false if the encoder failed.
    bool run_step(codec::cuda::GpuEncoder& encoder, std::span<EncodeCase> cases, std::uint64_t seed);

private:
    struct Placed {
        std::vector<const float*> samples;
        std::vector<const float*> moments;
        codec::StateView in, out;
    };
    void place(const EncodeCase& encode_case, Placed& ret_placed);
    std::size_t place_array(const void* data, std::size_t bytes, std::size_t offset_bytes);
    void check(EncodeCase& inout_case, const Placed& placed, codec::EncodeResult result,
               const codec::reference::Output& expected);
    void check_array(const EncodeCase& encode_case, const char* name, const float* array,
                     const std::vector<float>& expected);

    const Options& options_;
    Report& report_;
    std::vector<std::byte> image_;  ///< what the device memory held before the step
    std::vector<std::byte> after_;
    codec::cuda::DeviceMemory memory_;
};

/// Numbers that a 16-bit type holds, as its bits.
[[nodiscard]] std::uint16_t half_bits(float value, codec::cuda::ElementType type);
[[nodiscard]] float value_of_half(std::uint16_t bits, codec::cuda::ElementType type);

}  // namespace gradsieve::gpu_check

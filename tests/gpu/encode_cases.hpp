// Tensors to encode on a GPU in one batch, side by side in one piece of device memory: inputs, both generations of
// state, and guards between all arrays, poisoned before each step. What comes back is compared whole with what the slow
// reference says, so that a write anywhere else shows. On several GPUs, which share every tensor: samples in turn on
// each, and each one's part of the state on itself.
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
    /// `devices`: the encoder's, in its order.
    EncodeCases(std::vector<int> devices, Report& report)
        : devices_(std::move(devices)), memories_(devices_.size()), report_(report) {}
    /// Encodes all cases as one batch, compares, and carries the state. Returns false if the encoder failed.
    bool run_step(codec::cuda::GpuEncoder& encoder, std::span<EncodeCase> cases, std::uint64_t seed);

private:
    /// One device's memory, and what it held before and after the step.
    struct Memory {
        std::vector<std::byte> image;
        std::vector<std::byte> after;
        codec::cuda::DeviceMemory device;
    };
    struct Placed {
        std::vector<const float*> samples, moments;
        std::vector<int> sample_devices, moment_devices;
        std::vector<codec::cuda::GpuEncodePart> parts;  ///< one per device
    };
    void place(const EncodeCase& encode_case, Placed& inout_placed);
    void place_state(const EncodeCase& encode_case, std::size_t device, codec::cuda::GpuEncodePart& inout_part);
    const float* place_array(std::size_t device, const void* data, std::size_t bytes, std::size_t offset_bytes);
    template <typename Pointer>
    void move_to_device(Pointer& inout_address) const;
    bool upload();
    bool download();
    codec::cuda::GpuEncodeRequest request_of(EncodeCase& encode_case, const Placed& placed) const;
    void check(EncodeCase& inout_case, const Placed& placed, codec::EncodeResult result,
               const codec::reference::Output& expected);
    void check_array(const EncodeCase& encode_case, const std::string& name, std::size_t device, const float* array,
                     std::span<const float> expected);
    void forget(std::size_t device, const float* array, std::size_t elements);

    std::vector<int> devices_;
    std::vector<Memory> memories_;
    Report& report_;
};

/// Numbers that a 16-bit type holds, as its bits.
[[nodiscard]] std::uint16_t half_bits(float value, codec::cuda::ElementType type);
[[nodiscard]] float value_of_half(std::uint16_t bits, codec::cuda::ElementType type);

}  // namespace gradsieve::gpu_check

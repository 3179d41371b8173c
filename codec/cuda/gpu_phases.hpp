// The phases of a step (codec/phases.hpp) of tensors in device memory: what every element of a tensor takes part in
// runs on the device, what has the size of factors or cells on the host, in the tensor's PhaseMemory. The same
// payloads, state and results as there, bit for bit. GPU worker thread.
//
//     GpuEncoder with first_pass -> finish_first_phases -> payloads of all nodes -> decode_first_phase (no device)
//     -> encode_second_phases -> payloads -> decode_last_phases
#pragma once

#include "codec/cuda/gpu_low_rank.hpp"
#include "codec/cuda/gpu_sketch.hpp"
#include "codec/phases.hpp"

#include <span>
#include <vector>

namespace gradsieve::codec::cuda {

/// What works for the phases of every codec on a device.
struct GpuPhaseCodecs {
    /// Calls nothing of CUDA. `multiprocessors`: of the device.
    GpuPhaseCodecs(int device, int multiprocessors)
        : low_rank(device, multiprocessors), sketch(device, multiprocessors) {}
    GpuLowRank low_rank;
    GpuSketch sketch;
    [[nodiscard]] ByteCount workspace_bytes() const noexcept {
        return low_rank.workspace_bytes() + sketch.workspace_bytes();
    }
};

/// What the encoder does in a first phase instead of the pipeline: r takes all, and nothing is sent.
[[nodiscard]] Pipeline first_pass(const Pipeline& pipeline, Step step) noexcept;

/// `request` as for encode_phase, with residuals in device memory and factors in host memory.
struct GpuPhaseRequest {
    EncodeRequest request;
    PhaseMemory* memory = nullptr;
};

/// Once first_pass has been encoded: `inout_results` are its, one for each request, and become the phase's. All are of
/// the device of `stream`. Errors: kInvalidArgument, as encode_phase; as GpuLowRank and GpuSketch.
[[nodiscard]] Status finish_first_phases(const Stream& stream, std::span<const GpuPhaseRequest> requests,
                                         GpuPhaseCodecs& codecs, std::span<EncodeResult> ret_results);
[[nodiscard]] Status encode_second_phases(const Stream& stream, std::span<const GpuPhaseRequest> requests,
                                          GpuPhaseCodecs& codecs, std::span<EncodeResult> ret_results);

/// Of a step whose last payloads are there.
struct GpuPhaseDecode {
    PhaseMemory* memory = nullptr;
    TensorId tensor = 0;
    Step step = 0;
    std::span<const Contribution> contributions;
    std::vector<GpuResult> results;
};
/// A device that has results, and what works for it.
struct GpuPhaseDevice {
    const Stream* stream = nullptr;
    GpuPhaseCodecs* codecs = nullptr;
};
/// Each device writes the results that are its own memory; those of device -1 the first one does. Waits for all. One
/// result per request: a tensor with a corrupt payload has its Status, as decode_last_phase words it. Errors: as
/// GpuLowRank and GpuSketch; all results are unspecified then.
[[nodiscard]] Status decode_last_phases(std::span<const GpuPhaseDevice> devices,
                                        std::span<const GpuPhaseDecode> requests,
                                        std::span<Result<DecodeResult>> ret_results);

}  // namespace gradsieve::codec::cuda

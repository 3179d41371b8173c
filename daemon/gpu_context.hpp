// What a worker has of its GPUs while it uses them. Worker's thread.
#pragma once

#include "codec/cuda/gpu_decoder.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/cuda/gpu_phases.hpp"
#include "codec/cuda/gpu_reuse.hpp"
#include "codec/cuda/residual_norm.hpp"

#include <array>
#include <memory>
#include <vector>

namespace gradsieve::daemon {

struct GpuContext {
    /// In turn: while one codes lists and copies payloads out, the other's passes run already.
    std::array<std::unique_ptr<codec::cuda::GpuEncoder>, 2> encoders;
    std::unique_ptr<codec::cuda::GpuDecoder> decoder;
    codec::cuda::ResidualNorm norm;
    codec::cuda::GpuReuse reuse;
    std::vector<codec::cuda::GpuPhaseCodecs> phase_codecs;  ///< one for each device

    [[nodiscard]] const codec::cuda::GpuEncoder& encoder() const noexcept { return *encoders.front(); }
    [[nodiscard]] ByteCount workspace_bytes(std::size_t place) const {
        ByteCount bytes =
            decoder->workspace_bytes(place) + phase_codecs[place].workspace_bytes() + reuse.workspace_bytes(place);
        for (const auto& encoder : encoders) bytes += encoder->workspace_bytes(place);
        return bytes;
    }
    [[nodiscard]] std::uint64_t threshold_misses() const {
        std::uint64_t misses = 0;
        for (const auto& encoder : encoders) misses += encoder->threshold_misses();
        return misses;
    }
};

}  // namespace gradsieve::daemon

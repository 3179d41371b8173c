// CUDA's runtime for the host files of this folder: error codes as Status. Never included outside it.
#pragma once

#include "base/status.hpp"
#include "codec/cuda/device.hpp"

#include <cuda_runtime_api.h>

namespace gradsieve::codec::cuda {

/// ok, or kResourceExhausted (memory), kUnavailable (driver, device) with CUDA's own words and what to do. Clears the
/// runtime's last error unless it is sticky.
[[nodiscard]] Status status_of(cudaError_t error, const char* doing);

[[nodiscard]] inline cudaStream_t handle_of(const Stream& stream) noexcept {
    return static_cast<cudaStream_t>(stream.handle());
}

}  // namespace gradsieve::codec::cuda

#define GRADSIEVE_CUDA_TRY(call, doing) GRADSIEVE_TRY(::gradsieve::codec::cuda::status_of((call), (doing)))

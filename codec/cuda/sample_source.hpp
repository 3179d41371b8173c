// Where one of an encoder's devices finds a request's arrays. Calls no CUDA; any thread.
#pragma once

#include "codec/cuda/gpu_encoder.hpp"
#include "codec/cuda/peer_access.hpp"
#include "codec/cuda/staged_samples.hpp"

namespace gradsieve::codec::cuda {

/// What the device of that place codes.
[[nodiscard]] GpuEncodePart part_of(const GpuEncodeRequest& gpu_request, const DevicePlace& place);
/// A sample, or second moments, from the first element of `part` on; without a weight.
[[nodiscard]] StagedSamples::Source sample_source(const GpuEncodeRequest& gpu_request, const GpuEncodePart& part,
                                                  const DevicePlace& place, std::size_t sample);
[[nodiscard]] StagedSamples::Source moment_source(const GpuEncodeRequest& gpu_request, const GpuEncodePart& part,
                                                  const DevicePlace& place, std::size_t rank);

}  // namespace gradsieve::codec::cuda

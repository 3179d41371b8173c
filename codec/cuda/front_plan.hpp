// What the kernels of the stages in front of the selector are told of a tensor. Calls no CUDA; plain values, any
// thread.
#pragma once

#include "codec/cuda/encode_plan.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/cuda/staged_samples.hpp"

namespace gradsieve::codec::cuda {

/// Zeros where nothing stands in front.
[[nodiscard]] FrontPlan front_plan_of(const EncodeRequest& request, const GpuEncodePart& part) noexcept;
/// With momentum: what the dense pass then takes for samples, which is this device's own memory, in front of the
/// tensor's own.
void add_momentum_samples(const EncodeRequest& request, const GpuEncodePart& part, StagedSamples& inout_staged);

}  // namespace gradsieve::codec::cuda

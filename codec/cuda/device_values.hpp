// Values between device memory of any element type and fp32 in host memory, for what happens once in a job and not in
// every step. Waits for the device.
#pragma once

#include "codec/cuda/device.hpp"
#include "codec/cuda/gpu_encoder.hpp"

#include <span>

namespace gradsieve::codec::cuda {

/// The array's first `ret_values.size()` elements, converted exactly. Errors: kUnavailable, kUnimplemented.
[[nodiscard]] Status read_values(const Stream& stream, const void* array, ElementType type,
                                 std::span<float> ret_values);
/// Writes all of `values`; to fp16 and bf16 rounded to nearest, ties to even. Errors: as read_values.
[[nodiscard]] Status write_values(const Stream& stream, std::span<const float> values, void* array, ElementType type);

}  // namespace gradsieve::codec::cuda

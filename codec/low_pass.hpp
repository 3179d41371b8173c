// The low-pass form of error feedback: r = fl(fl(1 - b) c) r_before + fl(b) (p - sent), in fp32, every product rounded
// and the sum cut off at the largest finite numbers; p is what the step would have sent without compression, c the
// change of the gradient's scale. With beta = gamma = 1, r - r_before = b (g - sent): what was sent plus r / b is what
// was handed in. Source: Chen et al. 2020, ScaleCom: Scalable Sparsified Gradient Compression for
// Communication-Efficient Distributed Training, NeurIPS, the update of its memory. Plain values; any thread.
#pragma once

#include "codec/encoder.hpp"
#include "codec/low_pass_step.hpp"

namespace gradsieve::codec {

/// fl(fl(1 - b) c), and fl(b): what r of the step before and what was not sent are multiplied by.
struct LowPassFactors {
    float keep = 0;
    float take = 1;
};
[[nodiscard]] LowPassFactors low_pass_factors(const Front& front, float rescale) noexcept;

[[nodiscard]] LowPassStep low_pass_step(const EncodeRequest& request) noexcept;

}  // namespace gradsieve::codec

// sign(scale=two_mean), 1-bit SGD (Seide, Fu, Droppo, Li, Yu 2014): a tile's elements become the mean of those on their
// side of zero, of which a code says the side. Zero, whatever its sign, is not negative. Of all numbers a side could
// become, its mean leaves the smallest sum of squared errors: |x|^2 - sum over the sides of sum(|x|)^2 / count, never
// more than what the mean magnitude of both leaves. A side without elements has the mean 0. Any thread; plain values.
#pragma once

#include "codec/element.hpp"
#include "codec/stages/quantizer_facts.hpp"

#include <span>

namespace gradsieve::codec {

class QuantizerCoder;
struct PayloadKernels;

/// Magnitudes: of what is not negative, and of what is.
struct TwoMeans {
    float of[2] = {};
};

/// The mean of a side, in fp64 and rounded to fp32.
GRADSIEVE_HOST_DEVICE inline float mean_of_side(double magnitude_sum, std::uint32_t count) {
    return count == 0 ? 0.0F : static_cast<float>(magnitude_sum / static_cast<double>(count));
}

/// Of at most kTileElements values, in fp32.
[[nodiscard]] TwoMeans two_means_of(std::span<const float> values, const PayloadKernels& kernels) noexcept;

/// A chunk's list, tile by tile, with means rounded to bf16: fills `ret_decoded` (+0: not sent) and, by twice the
/// tile's number in the chunk, `ret_scales`. Returns how many are sent.
[[nodiscard]] std::uint32_t two_mean_chunk_list(std::span<const std::uint32_t> indices, std::span<const float> values,
                                                const PayloadKernels& kernels, float* ret_decoded, float* ret_scales);

namespace stages {

struct TwoMean {
    static constexpr QuantizerFacts kFacts = {.kind = QuantizerKind::kTwoMean,
                                              .name = "two_mean",
                                              .route = DenseRoute::kHeld,
                                              .tile_scales = 2,
                                              .is_sign_bit = true,
                                              .codes_zero = false};
    static const QuantizerCoder& kCoder;
};

}  // namespace stages

}  // namespace gradsieve::codec

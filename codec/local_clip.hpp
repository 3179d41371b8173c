// Local gradient clipping, momentum(clip=x): a node's mean gradient of a tensor is scaled down, before u takes it in,
// to an l2 norm of at most x sqrt(N) on each of N nodes. The paper clips what a node adds to the average, G^k = gbar /
// N (its Algorithm 1 and equation 3), at x / sqrt(N), which is gbar at x sqrt(N): independent gradients of that norm
// have an average of norm x, so x is the threshold of the averaged gradient, held without a word between the nodes.
// Equal ones have an average of norm x sqrt(N). The squares of gbar are added up in fp64, in a tile as
// codec/stages/dither.hpp has it and over tiles as tile_sum_tree.hpp has it, so that every form and host finds the same
// factor, fl32(x sqrt(N) / norm); each sample's weight is multiplied by it, in fp32. A norm that is within the bound
// leaves the weights as they are, and so does one that is not finite: what it comes from is found and reported where u
// is written. Source: Lin, Han, Mao, Wang, Dally 2018, Deep Gradient Compression, arXiv:1712.01887, 3.2 and
// Algorithm 1. Any thread; no state.
#pragma once

#include "base/id.hpp"
#include "codec/clip_factor.hpp"
#include "codec/momentum_step.hpp"
#include "codec/payload_kernels.hpp"

#include <cstdint>
#include <span>

namespace gradsieve::codec {

/// The norm that the mean gradient has at most. `clip` > 0; `node_count` >= 1.
[[nodiscard]] double most_clipped_norm(double clip, std::uint32_t node_count) noexcept;
/// What it is multiplied by for that, in [0, 1]: bounded_factor. `square_sum` of the mean gradient.
[[nodiscard]] float clip_factor(double clip, std::uint32_t node_count, double square_sum) noexcept;

/// Sum of squares of the samples' mean, `step` being the whole tensor's; infinite or NaN where that is. `scratch`: room
/// for a tile.
[[nodiscard]] double mean_square_sum(const MomentumStep& step, ElementCount elements, const PayloadKernels& kernels,
                                     std::span<float> scratch) noexcept;

}  // namespace gradsieve::codec

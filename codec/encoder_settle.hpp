// What a sent element leaves behind. The dense pass wrote the state with a guess of what is sent (SentGuess) or without
// one; this corrects the elements for which that was wrong. Sparse work. One thread.
#pragma once

#include "codec/dense_pass.hpp"
#include "codec/payload_kernels.hpp"

namespace gradsieve::codec {

/// One chunk's selection and what the receivers decode for it.
struct SentChunk {
    std::span<const std::uint32_t> indices;
    std::span<const float> values;            ///< r before anything was subtracted
    std::span<const float> variances;         ///< v before any decay; empty if the pipeline has none
    std::span<const float> decoded;           ///< +0: not sent
    std::uint32_t guess_floor = kNeverGuess;  ///< the pass took these magnitudes and larger ones to be sent
    float* residual_out = nullptr;            ///< of the chunk's first element
    float* variance_out = nullptr;            ///< null if the pipeline has none
};

/// Sent: r = r - decoded (faithful: 0); v = 0, or in the hybrid v = max(v - 2 |r| |decoded| + decoded^2, 0), which
/// leaves r^2 - v as it was. Not sent: r and zeta v. Returns how many were sent.
[[nodiscard]] std::size_t settle_sent(const DensePlan& plan, bool is_faithful, const SentChunk& chunk,
                                      const PayloadKernels& kernels) noexcept;

/// Undoes the guess for an element that was not even selected.
void settle_unsent(const DensePlan& plan, const StateView& out, ElementCount element, float value,
                   float variance) noexcept;

}  // namespace gradsieve::codec

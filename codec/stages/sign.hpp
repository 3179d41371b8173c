// The quantizer `sign`, and its form with one magnitude of a tile or a chunk for both signs: the mean (Karimireddy et
// al. 2019), a number, or DRIVE's. Forms with other scales are two_mean.hpp and vote.hpp. Constants; any thread.
#pragma once

#include "codec/pipeline.hpp"
#include "codec/stages/quantizer_facts.hpp"

namespace gradsieve::codec {

struct QuantizerStage;
class QuantizerCoder;

namespace stages {

struct Sign {
    static constexpr QuantizerFacts kFacts = {.kind = QuantizerKind::kSign,
                                              .name = "sign",
                                              .version = 2,
                                              .route = DenseRoute::kHeld,
                                              .tile_scales = 1,
                                              .is_sign_bit = true};
    static const QuantizerStage kStage;
    static const QuantizerCoder& kCoder;
};

}  // namespace stages

/// sign(scale=tau) after a selector that has one.
[[nodiscard]] Quantizer tau_sign(const Selector& selector);
/// sign(scale=drive), whose error is dropped: in front of it is a rotation, over which it is zero in the mean, where
/// that makes elements normal.
[[nodiscard]] constexpr bool has_drive_scale(const Quantizer& quantizer) noexcept {
    return quantizer.kind == stages::Sign::kFacts.kind && quantizer.feedback == Feedback::kNone;
}

}  // namespace gradsieve::codec

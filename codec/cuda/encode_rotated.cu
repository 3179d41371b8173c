// The dense passes that quantize rotations (codec/rotation.hpp), forms of their own: transforms cost the others'
// registers.
#include "codec/cuda/dense_tiles.cuh"

namespace gradsieve::codec::cuda {
namespace {

template <QuantizerKind kQuantizer>
PassKernel pick(unsigned samples) {
    return pick_dense<kQuantizer, true>(samples);
}

}  // namespace

PassKernel find_rotated_kernel(QuantizerKind quantizer, unsigned samples) noexcept {
    switch (quantizer) {
        case QuantizerKind::kF16: return pick<QuantizerKind::kF16>(samples);
        case QuantizerKind::kBf16: return pick<QuantizerKind::kBf16>(samples);
        case QuantizerKind::kTwoMean: return pick<QuantizerKind::kTwoMean>(samples);
        case QuantizerKind::kNatural: return pick<QuantizerKind::kNatural>(samples);
        case QuantizerKind::kDither: return pick<QuantizerKind::kDither>(samples);
        case QuantizerKind::kExponentialDither: return pick<QuantizerKind::kExponentialDither>(samples);
        case QuantizerKind::kMinMax: return pick<QuantizerKind::kMinMax>(samples);
        case QuantizerKind::kSign:
        case QuantizerKind::kF32:  // parse_pipeline refuses the others after rotate
        case QuantizerKind::kVote:
        case QuantizerKind::kInteger:
        case QuantizerKind::kPow2: break;
    }
    return pick<QuantizerKind::kSign>(samples);
}

}  // namespace gradsieve::codec::cuda

// The dense passes without a rotation.
#include "codec/cuda/dense_tiles.cuh"

namespace gradsieve::codec::cuda {
namespace {

template <QuantizerKind kQuantizer>
PassKernel pick(unsigned samples) {
    return pick_dense<kQuantizer, false>(samples);
}

}  // namespace

PassKernel find_dense_kernel(QuantizerKind quantizer, unsigned samples) noexcept {
    switch (quantizer) {
        case QuantizerKind::kF16: return pick<QuantizerKind::kF16>(samples);
        case QuantizerKind::kBf16: return pick<QuantizerKind::kBf16>(samples);
        case QuantizerKind::kSign: return pick<QuantizerKind::kSign>(samples);
        case QuantizerKind::kTwoMean: return pick<QuantizerKind::kTwoMean>(samples);
        case QuantizerKind::kVote: return pick<QuantizerKind::kVote>(samples);
        case QuantizerKind::kNatural: return pick<QuantizerKind::kNatural>(samples);
        case QuantizerKind::kDither: return pick<QuantizerKind::kDither>(samples);
        case QuantizerKind::kExponentialDither: return pick<QuantizerKind::kExponentialDither>(samples);
        case QuantizerKind::kMinMax: return pick<QuantizerKind::kMinMax>(samples);
        case QuantizerKind::kF32:
        case QuantizerKind::kInteger:      // sends lists
        case QuantizerKind::kPow2: break;  // the same
    }
    return pick<QuantizerKind::kF32>(samples);
}

}  // namespace gradsieve::codec::cuda

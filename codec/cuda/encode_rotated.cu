// The dense passes that quantize rotations (codec/rotation.hpp), forms of their own: transforms cost the others'
// registers. parse_pipeline refuses quantizers that lose nothing after rotate.
#include "codec/cuda/dense_tiles.cuh"

namespace gradsieve::codec::cuda {

PassKernel find_rotated_kernel(QuantizerKind quantizer, unsigned samples) noexcept {
    PassKernel found{};
    for_each_form(Quantizers{}, [&]<typename Form>(Form) {
        constexpr QuantizerFacts kFacts = Form::kFacts;
        if constexpr (kFacts.may_be_rotated && !kFacts.is_exact)
            if (quantizer == kFacts.kind) found = pick_dense<kFacts.kind, true>(samples);
    });
    return found;
}

}  // namespace gradsieve::codec::cuda

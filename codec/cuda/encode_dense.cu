// The dense passes without a rotation: of every quantizer whose payloads have a size that is known beforehand.
#include "codec/cuda/dense_tiles.cuh"

namespace gradsieve::codec::cuda {

PassKernel find_dense_kernel(QuantizerKind quantizer, unsigned samples) noexcept {
    PassKernel found{};
    for_each_form(Quantizers{}, [&]<typename Form>(Form) {
        constexpr QuantizerFacts kFacts = Form::kFacts;
        if constexpr (kFacts.route != DenseRoute::kList && kFacts.route != DenseRoute::kChunk)
            if (quantizer == kFacts.kind) found = pick_dense<kFacts.kind, false>(samples);
    });
    return found;
}

}  // namespace gradsieve::codec::cuda

// How a quantizer codes a tile in the dense pass: a specialization in the quantizer's own header, found at compile
// time. Device code only.
#pragma once

#include "codec/cuda/dense_payload.cuh"
#include "codec/cuda/dense_stage.cuh"
#include "codec/stages/quantizer_list.hpp"

namespace gradsieve::codec::cuda {

/// Who writes what the codes leave of a tile.
enum class Leftover : std::uint8_t {
    kCaller,        ///< whoever called `code`, always
    kCallerIfKept,  ///< the same, where the pipeline has a residual
    kNobody         ///< nothing is left, or `code` has written it
};

/// A specialization has
///   Shared: what the warps that look at a tile tell each other
///   kHoldsStage: `code` gives the stage's arrays back itself; else its caller has done that
///   kLeftover
///   code<kDecodes>(stage, values, payload, r, shared): codes the tile and leaves in `r` what the codes lose, or, of a
///     rotation (kDecodes), what they decode to. `values`: StageValues, or RotatedValues; `shared`: DenseShared, or
///     RotatedShared, of which as<Shared>() is the form's.
/// This one is of quantizers that have no such code: they send lists, or a warp of their own finds tiles' units.
template <QuantizerKind kQuantizer>
struct DenseForm {
    struct Shared {};
};

/// Of a quantizer whose codes need nothing of other elements. `Store::store<kDecodes>(work, values, number, r)` codes a
/// vector.
template <typename Store>
struct VectorForm {
    struct Shared {};
    static constexpr bool kHoldsStage = false;

    template <bool kDecodes, typename Values, typename Block>
    static __device__ void code(const TileStage& stage, const Values& /*values*/, const DensePayload& payload,
                                Vector (&r)[kThreadVectors], Block& /*shared*/) {
#pragma unroll
        for (unsigned j = 0; j < kThreadVectors; ++j)
            Store::template store<kDecodes>(stage.work, payload.values, own_vector(j), r[j]);
    }
};

template <typename... Stages>
constexpr std::size_t largest_shared(QuantizerList<Stages...> /*list*/) {
    std::size_t largest = 1;
    for_each_form(QuantizerList<Stages...>{}, [&]<typename Form>(Form) {
        constexpr std::size_t kBytes = sizeof(typename DenseForm<Form::kFacts.kind>::Shared);
        largest = kBytes > largest ? kBytes : largest;
    });
    return largest;
}

}  // namespace gradsieve::codec::cuda

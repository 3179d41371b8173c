// Payload of a chunk of which every element is sent (f32, bf16, sign), made tile by tile, so that an encoder can code a
// tile while it lies in the first-level cache. Same bytes as coding the chunk at once. One thread; the caller owns all.
#pragma once

#include "codec/payload.hpp"

#include <span>

namespace gradsieve::codec {

class DenseCoder {
public:
    /// Appends the header to `payload`, which nobody else touches until the chunk's last tile. Not for pow2.
    DenseCoder(const Quantizer& quantizer, ElementCount chunk_elements, Bytes& payload);

    /// Codes the next tile: kTileElements values, fewer only in the chunk's last tile. `ret_decoded` gets what
    /// receivers decode; for f32 it may be `values` itself.
    void code_tile(std::span<const float> values, std::span<float> ret_decoded);

private:
    void code_bf16_tile(std::span<const float> values, float* ret_decoded);
    void code_sign_tile(std::span<const float> values, float* ret_decoded);

    PayloadHeader header_;
    Bytes& payload_;
    std::size_t scales_at_ = 0;  ///< sign: next tile's scale and bits
    std::size_t bits_at_ = 0;
};

}  // namespace gradsieve::codec

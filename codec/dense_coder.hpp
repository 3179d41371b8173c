// Payload of a chunk of which every element is sent (all quantizers but pow2): the header and where everything else
// belongs, so that whoever has the values writes them straight into the payload. One thread; the caller owns all.
#pragma once

#include "codec/chunk_coder.hpp"
#include "codec/payload.hpp"
#include "codec/payload_kernels.hpp"
#include "codec/payload_pool.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/two_mean.hpp"

#include <span>

namespace gradsieve::codec {

class DensePayload {
public:
    /// Takes the payload's memory and writes the header. Not for pow2. `rotation`: the key, if what follows is of the
    /// chunk's rotation.
    DensePayload(const Quantizer& quantizer, ElementCount chunk_elements, const PayloadPool& pool,
                 const PhiloxKey* rotation = nullptr);

    /// The value section, aligned to 64 bytes: fp32 numbers, those of 16 bits, or codes.
    [[nodiscard]] std::byte* values() noexcept { return bytes_.data() + values_at_; }
    /// Those of a tile.
    [[nodiscard]] std::byte* tile_codes(std::size_t tile) noexcept {
        return values() + tile * tile_bytes(kTileElements);
    }
    /// And how many bytes a tile of so many elements has.
    [[nodiscard]] std::size_t tile_bytes(std::size_t elements) const noexcept {
        return bytes_of_bits(elements * header_.value_bits());
    }
    /// sign: the scale of a tile whose magnitudes add up to `magnitude_sum`, in fp64 as the format says; written unless
    /// the chunk has one scale for all.
    float write_mean(std::size_t tile, double magnitude_sum, std::size_t elements) noexcept;
    void write_scale(std::size_t tile, float scale) noexcept;
    /// minmax: where the ranges of a tile's buckets belong, two fp32 numbers each.
    [[nodiscard]] std::byte* tile_ranges(std::size_t tile) noexcept {
        return bytes_.data() + scales_at_ + (tile * kTileElements >> header_.bucket_log2) * (2 * sizeof(float));
    }
    void write_scales(std::size_t tile, const TwoMeans& means) noexcept;
    /// Once every value and scale is written.
    [[nodiscard]] PayloadBytes take() noexcept { return std::move(bytes_); }

private:
    PayloadHeader header_;
    std::size_t scales_at_ = 0;
    std::size_t values_at_ = 0;
    PayloadBytes bytes_;
};

/// Codes the tiles of dense payloads, one after the other, with what all of them share at hand.
class DenseTileCoder {
public:
    /// `kernels` outlive it; the quantizer too. Not for pow2 and integer.
    DenseTileCoder(const Quantizer& quantizer, const RandomStream& random, const PayloadKernels& kernels)
        : quantizer_(quantizer), coder_(coder_of(quantizer.kind)), random_(random), kernels_(kernels) {}
    /// Tile `tile` of the payload, whose first element is number `first_element` of the tensor. `ret_decoded`: what
    /// receivers decode before they rotate anything back; it may be the values.
    void code(std::span<const float> values, ElementCount first_element, std::size_t tile, DensePayload& inout_payload,
              float* ret_decoded) const;

private:
    const Quantizer& quantizer_;
    const QuantizerCoder& coder_;
    RandomStream random_;
    const PayloadKernels& kernels_;
};

/// A tile of a rotation: `values` are those of the chunk from `first` on, before it, and `ret_decoded` what receivers
/// rotate back, if they have this payload alone.
void code_rotated_tile(const DenseTileCoder& coder, PhiloxKey key, std::uint32_t first, std::span<const float> values,
                       ElementCount first_element, const PayloadKernels& kernels, DensePayload& inout_payload,
                       float* ret_decoded);

/// The payload of a dense selection. `ret_decoded` gets what receivers decode; it may be the values themselves.
[[nodiscard]] PayloadBytes code_dense(const Quantizer& quantizer, const ChunkSelection& selection,
                                      const PayloadPool& pool, const PayloadKernels& kernels,
                                      std::span<float> ret_decoded);

}  // namespace gradsieve::codec

// What the CPU's side asks of a quantizer's form. One object of each, without state; found by a form's number. Asked
// once for a codec, a chunk or a tile, never for an element. Any thread.
#pragma once

#include "codec/pipeline.hpp"

namespace gradsieve::codec {

class QuantizerCoder {
public:
    /// Bits of a code; 0 of what is an fp number, and where each chunk says them.
    [[nodiscard]] virtual std::uint32_t code_bits(const Quantizer& quantizer) const noexcept = 0;
    /// Of a value and its share of scales, as far as that is known before there are gradients.
    [[nodiscard]] virtual double expected_bits(const Quantizer& quantizer) const noexcept {
        return code_bits(quantizer);
    }

protected:
    constexpr QuantizerCoder() = default;
    ~QuantizerCoder() = default;
};

/// Of a number that is taken.
[[nodiscard]] const QuantizerCoder& coder_of(QuantizerKind quantizer) noexcept;

}  // namespace gradsieve::codec

// Sections of a list's body and values in them, for those who read what a quantizer wrote. Every byte is untrusted. Any
// thread; borrows the payload's bytes.
#pragma once

#include "codec/bit_stream.hpp"
#include "codec/payload.hpp"

#include <array>
#include <string>

namespace gradsieve::codec {

/// Takes sections off the front of a list's body.
class SectionReader {
public:
    explicit SectionReader(ByteView body) : rest_(body) {}
    [[nodiscard]] ByteView rest() const noexcept { return rest_; }
    void skip(std::size_t bytes) noexcept { rest_ = rest_.subspan(bytes); }
    /// The value section is the last one: exactly these bytes, padded with zeros. Errors: kCorrupt.
    [[nodiscard]] Status take_last(std::uint64_t bits) const {
        if (rest_.size() != bytes_of_bits(bits))
            return corrupt_payload("length of the value section", rest_.size(),
                                   std::to_string(bytes_of_bits(bits)) + " bytes");
        if (!has_zero_padding(rest_, bits)) return corrupt_payload("values", "with set padding", "zero bits");
        return {};
    }
    /// The same of all values of a header.
    [[nodiscard]] Status take_values(const PayloadHeader& header) const {
        return take_last(std::uint64_t{header.count} * header.value_bits());
    }
    /// A scale for each tile as bf16, in front of the values. Errors: kCorrupt.
    [[nodiscard]] Result<ByteView> take_scales(const PayloadHeader& header, std::uint32_t tiles) {
        const std::size_t bytes = std::size_t{tiles} * header.tile_scale_bytes();
        if (rest_.size() < bytes) return corrupt_payload("tile scales", "cut off", "one for each tile with elements");
        const ByteView scales = rest_.first(bytes);
        skip(bytes);
        return scales;
    }

private:
    ByteView rest_;
};

/// Number `number` of a list's scales; a caller checks it (is_tile_scale).
[[nodiscard]] inline float list_scale_at(ByteView scales, std::size_t number) noexcept {
    std::uint16_t rounded = 0;
    std::memcpy(&rounded, scales.data() + number * sizeof(rounded), sizeof(rounded));
    return float_of_bf16(rounded);
}

/// All codes of `width` bits: in groups where a whole word may be read, the last ones field by field.
void read_codes(ByteView section, std::uint32_t count, unsigned width, std::uint8_t* ret_codes) noexcept;
/// Signs `first` to `end` as values. `scales`: of clear bits, and of those that are set.
void read_signs(ByteView section, std::uint32_t first, std::uint32_t end, const std::array<float, 2>& scales,
                float* ret_values) noexcept;

}  // namespace gradsieve::codec

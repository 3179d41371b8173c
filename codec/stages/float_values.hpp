// Values that are fp numbers, for the quantizers that send such. `BitsOf`: fp32 bits of element `element` of a value
// section. Included by stages' .cpp files only. Any thread.
#pragma once

#include "codec/stages/quantizer_coder.hpp"

#include <bit>

namespace gradsieve::codec {

[[nodiscard]] inline bool is_finite_bits(std::uint32_t bits) noexcept {
    constexpr std::uint32_t kExponentMask = 0x7F800000U;
    return (bits & kExponentMask) != kExponentMask;
}

/// The number at a place, at any alignment.
template <typename Number>
[[nodiscard]] Number number_at(const std::byte* values, std::size_t element) noexcept {
    Number number = 0;
    std::memcpy(&number, values + element * sizeof(number), sizeof(number));
    return number;
}

template <typename BitsOf>
[[nodiscard]] bool are_finite(const PayloadView& view, BitsOf bits_of) noexcept {
    const std::byte* values = view.values.data();
    std::uint32_t non_finite = 0;
    for (std::size_t element = 0; element < view.elements; ++element)
        non_finite |= is_finite_bits(bits_of(values, element)) ? 0U : 1U;
    return non_finite == 0;
}

template <typename BitsOf>
[[nodiscard]] bool are_small(const PayloadView& view, BitsOf bits_of) noexcept {
    const std::byte* values = view.values.data();
    for (std::size_t element = 0; element < view.elements; ++element)
        if (!(element::magnitude(element::float_of(bits_of(values, element))) <= kMostRotatedNumber)) return false;
    return true;
}

template <typename BitsOf>
[[nodiscard]] Status read_floats(const PayloadHeader& header, const SectionReader& sections, float* ret_values,
                                 BitsOf bits_of) {
    GRADSIEVE_TRY(sections.take_values(header));
    const std::byte* values = sections.rest().data();
    std::uint32_t non_finite = 0;
    for (std::size_t element = 0; element < header.count; ++element) {
        const std::uint32_t bits = bits_of(values, element);
        non_finite |= is_finite_bits(bits) ? 0U : 1U;
        ret_values[element] = std::bit_cast<float>(bits);
    }
    return non_finite == 0 ? Status{} : non_finite_value();
}

/// A list of which each value is rounded by itself. `round`: a value, as receivers have it.
template <typename Round>
[[nodiscard]] std::uint32_t send_rounded(const ListJob& job, Round round) noexcept {
    std::uint32_t sent = 0;
    for (std::size_t i = 0; i < job.values.size(); ++i) {
        const float rounded = round(job.values[i]);
        const bool is_sent = rounded != 0.0F;
        job.ret_decoded[i] = is_sent ? rounded : 0.0F;  // -0 becomes +0: the mark of what is not sent
        sent += is_sent ? 1U : 0U;
    }
    return sent;
}

}  // namespace gradsieve::codec

// Values that are fp numbers, and the coder of the quantizers that send such. Included by stages' .cpp files only. Any
// thread.
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

/// What the quantizers that send fp numbers have in common. `Form`: its Number on the wire, kTerm, kRule;
/// bits_of(number): fp32 bits of one; number_of(value): one of a value that is sent; round(value): a value, as
/// receivers have it; code_tile(job).
template <typename Form>
class FloatCoder : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept final { return 0; }
    double expected_bits(const Quantizer& /*quantizer*/) const noexcept final { return 8 * sizeof(Number); }
    DenseRule dense_rule(const Quantizer& /*quantizer*/) const noexcept final { return Form::kRule; }

    std::uint32_t code_list(const ListJob& job) const final { return send_rounded(job, Form::round); }
    std::byte* write_values(const PayloadHeader& /*header*/, const SentList& sent, const CodeScratch& /*scratch*/,
                            std::byte* out) const final {
        for (const float value : sent.decoded) {
            const Number number = Form::number_of(value);
            std::memcpy(out, &number, sizeof number);
            out += sizeof number;
        }
        return out;
    }
    void code_tile(const TileJob& job) const final { Form::code_tile(job); }

    Status read_list(const PayloadHeader& header, TileTable& /*inout_tiles*/, SectionReader sections,
                     DecodedList& ret_list) const final {
        GRADSIEVE_TRY(sections.take_values(header));
        const std::byte* values = sections.rest().data();
        std::uint32_t non_finite = 0;
        for (std::size_t element = 0; element < header.count; ++element) {
            const std::uint32_t bits = bits_at(values, element);
            non_finite |= is_finite_bits(bits) ? 0U : 1U;
            ret_list.values[element] = std::bit_cast<float>(bits);
        }
        return non_finite == 0 ? Status{} : non_finite_value();
    }
    bool has_finite_values(const PayloadView& view) const noexcept final {
        const std::byte* values = view.values.data();
        std::uint32_t non_finite = 0;
        for (std::size_t element = 0; element < view.elements; ++element)
            non_finite |= is_finite_bits(bits_at(values, element)) ? 0U : 1U;
        return non_finite == 0;
    }
    bool has_small_values(const PayloadView& view) const noexcept override {
        const std::byte* values = view.values.data();
        for (std::size_t element = 0; element < view.elements; ++element)
            if (!(element::magnitude(element::float_of(bits_at(values, element))) <= kMostRotatedNumber)) return false;
        return true;
    }
    DenseTerm term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& /*room*/) const final {
        return {Form::kTerm, factor, view.values.data() + std::size_t{first} * sizeof(Number)};
    }

protected:
    constexpr FloatCoder() = default;
    ~FloatCoder() = default;

private:
    using Number = typename Form::Number;
    static std::uint32_t bits_at(const std::byte* values, std::size_t element) noexcept {
        return Form::bits_of(number_at<Number>(values, element));
    }
};

}  // namespace gradsieve::codec

// Where each section of a list's payload begins: the size formula and the header of docs/payload-format.md for the
// kernels, and fields of bits. Device code only.
#pragma once

#include "codec/cuda/encode_plan.hpp"
#include "codec/payload.hpp"

namespace gradsieve::codec::cuda {

inline constexpr unsigned kLargestRice = 20;
inline constexpr unsigned kNoExponents = kNoTileExponents;
inline constexpr std::uint32_t kPayloadAlignment = 16;
static_assert(kLargestRice == kMaximumRiceParameter);

/// What the size of a list's payload depends on.
struct ListShape {
    std::uint32_t elements = 0;  ///< of the chunk
    std::uint32_t count = 0;     ///< sent
    std::uint32_t tiles = 0;     ///< with something sent
    std::uint32_t rice_parameter = 0;
    std::uint32_t unary_bits = 0;
    std::uint32_t base_exponent = 0;  ///< integer: largest whole number
    std::uint32_t exponent_parameter = kNoExponents;
    std::uint32_t exponent_bits = 0;
};

/// A payload: what its header says, and the first bit of each section.
struct PayloadLayout {
    std::uint32_t bytes;
    std::uint32_t count;
    QuantizerKind quantizer;
    IndexForm form;
    std::uint32_t index_parameter;
    std::uint32_t exponent_parameter;
    std::uint32_t base_exponent;
    std::uint32_t value_bits;
    std::uint32_t indices_bit, unary_bit, scales_bit, values_bit;
};

__device__ inline std::uint32_t count_bytes(std::uint32_t count) {
    return count < (1U << 7U) ? 1 : count < (1U << 14U) ? 2 : 3;
}
__device__ inline std::uint32_t whole_bytes(std::uint32_t bits) { return (bits + 7U) / 8U; }

__device__ inline std::uint32_t value_bits_of(const TensorPlan& plan, const ListShape& shape, IndexForm form) {
    const auto quantizer = static_cast<QuantizerKind>(plan.quantizer);
    if (!has_value_byte(quantizer)) return 8U * plan.value_bytes;
    if (has_step(quantizer)) return integer_bits(shape.base_exponent);
    const bool is_paper_word = has_exponents(quantizer) && form == IndexForm::kRaw32 && plan.code_bits == 4;
    return is_paper_word ? 0U : plan.code_bits;
}

/// Whether each tile has a scale of its own.
__device__ inline bool has_tile_scales(const TensorPlan& plan) {
    return codec::has_tile_scales(static_cast<QuantizerKind>(plan.quantizer)) && !(plan.sign_scale > 0);
}

/// The layout in one form. A chunk's sections together stay below 2^26 bits.
__device__ inline PayloadLayout layout_in(const TensorPlan& plan, const ListShape& shape, IndexForm form) {
    PayloadLayout layout{};
    layout.count = shape.count;
    layout.quantizer = static_cast<QuantizerKind>(plan.quantizer);
    layout.form = form;
    const bool is_elias_fano = form == IndexForm::kEliasFano;
    if (form == IndexForm::kRice) layout.index_parameter = shape.rice_parameter;
    if (is_elias_fano) layout.index_parameter = elias_fano_low_bits(shape.elements, shape.count);
    layout.exponent_parameter = shape.exponent_parameter;
    layout.base_exponent = shape.base_exponent;
    layout.value_bits = value_bits_of(plan, shape, form);
    const bool is_list = form != IndexForm::kEvery;
    const bool is_pow2 = has_exponents(layout.quantizer);
    const bool has_chunk_scale = plan.sign_scale > 0;
    std::uint32_t at = 2 + (has_value_byte(layout.quantizer) ? 1 : 0) + (is_list ? count_bytes(shape.count) : 0) +
                       (is_list || is_pow2 ? 1 : 0) + (is_pow2 ? 1 : 0) +
                       (has_chunk_scale || has_base(layout.quantizer) || has_step(layout.quantizer) ? 4 : 0);
    layout.indices_bit = at * 8;
    if (form == IndexForm::kRice || is_elias_fano) at += whole_bytes(shape.count * layout.index_parameter);
    if (form == IndexForm::kBitmap) at += whole_bytes(shape.elements);
    if (form == IndexForm::kRaw32) at += shape.count * 4;
    if (is_keyed(form)) at += key_bytes(form);
    layout.unary_bit = at * 8;
    if (form == IndexForm::kRice) at += whole_bytes(shape.unary_bits);
    if (is_elias_fano) at += whole_bytes(elias_fano_high_bits(shape.elements, shape.count, layout.index_parameter));
    layout.scales_bit = at * 8;
    if (is_pow2 && shape.exponent_parameter != kNoExponents) at += whole_bytes(shape.exponent_bits);
    if (has_tile_scales(plan)) at += shape.tiles * scales_per_tile(layout.quantizer) * (is_list ? 2 : 4);
    layout.values_bit = at * 8;
    layout.bytes = at + whole_bytes(shape.count * layout.value_bits);
    return layout;
}

/// The smallest form that the pipeline allows; on a tie the earlier one of every, Rice, bitmap, words. Elias-Fano is
/// at most a byte smaller than Rice (docs/codecs.md).
__device__ inline PayloadLayout choose_layout(const TensorPlan& plan, const ListShape& shape) {
    if (plan.key_form != 0) return layout_in(plan, shape, static_cast<IndexForm>(plan.key_form));
    switch (static_cast<IndexCoderKind>(plan.index_coder)) {
        case IndexCoderKind::kRice: return layout_in(plan, shape, IndexForm::kRice);
        case IndexCoderKind::kBitmap: return layout_in(plan, shape, IndexForm::kBitmap);
        case IndexCoderKind::kRaw32: return layout_in(plan, shape, IndexForm::kRaw32);
        case IndexCoderKind::kEliasFano: return layout_in(plan, shape, IndexForm::kEliasFano);
        case IndexCoderKind::kAuto: break;
    }
    PayloadLayout best = layout_in(plan, shape, IndexForm::kRice);
    if (shape.count == shape.elements) {
        const PayloadLayout every = layout_in(plan, shape, IndexForm::kEvery);
        if (every.bytes <= best.bytes) best = every;
    }
    const PayloadLayout bitmap = layout_in(plan, shape, IndexForm::kBitmap);
    if (bitmap.bytes < best.bytes) best = bitmap;
    const PayloadLayout words = layout_in(plan, shape, IndexForm::kRaw32);
    if (words.bytes < best.bytes) best = words;
    return best;
}

/// integer's code, a word whose highest bit is its sign, as a field of a payload.
__device__ inline std::uint32_t integer_field(std::uint32_t code, std::uint32_t bits) {
    return (code & element::kMagnitudeMask) | code >> 31U << (bits - 1U);
}

/// Sets a field of at most 32 bits in zeroed memory; fields of several threads may share a word.
__device__ inline void or_bits(std::uint32_t* words, std::uint32_t bit, std::uint32_t value, unsigned width) {
    const unsigned shift = bit % 32;
    atomicOr(words + bit / 32, value << shift);
    if (shift + width > 32) atomicOr(words + bit / 32 + 1, value >> (32 - shift));
}

/// The index section of a form whose positions follow from a key.
__device__ inline void write_key(const SelectionRule& rule, const PayloadLayout& layout, std::uint32_t* words) {
    or_bits(words, layout.indices_bit, rule.key.low, 32);
    or_bits(words, layout.indices_bit + 32U, rule.key.high, 32);
    if (layout.form != IndexForm::kBernoulli) return;
    or_bits(words, layout.indices_bit + 64U, rule.first_limit, 32);
    or_bits(words, layout.indices_bit + 96U, rule.last_limit, 32);
}

__device__ inline void write_header(const TensorPlan& plan, const PayloadLayout& layout, std::uint32_t* words) {
    std::uint32_t at = 0;
    const auto write = [&](std::uint32_t byte) {
        or_bits(words, at, byte, 8);
        at += 8;
    };
    const bool is_list = layout.form != IndexForm::kEvery;
    const bool is_pow2 = has_exponents(layout.quantizer);
    const bool has_chunk_scale = plan.sign_scale > 0;
    write(payload_version(layout.quantizer, layout.form));
    write(form_byte(layout.quantizer, layout.form));
    if (has_value_byte(layout.quantizer))
        write(value_byte(has_step(layout.quantizer) ? layout.value_bits : plan.code_bits, has_chunk_scale));
    if (is_list) {
        std::uint32_t count = layout.count;
        for (; count >= 128; count >>= 7U) write((count & 127U) | 128U);
        write(count);
    }
    if (is_list || is_pow2) write(layout.index_parameter | (is_pow2 ? layout.exponent_parameter << 5U : 0U));
    if (is_pow2) write(layout.base_exponent);
    if (has_chunk_scale) or_bits(words, at, __float_as_uint(plan.sign_scale), 32);
    if (has_base(layout.quantizer)) or_bits(words, at, __float_as_uint(plan.base), 32);
    if (has_step(layout.quantizer)) or_bits(words, at, __float_as_uint(plan.depth_per_bit), 32);
}

}  // namespace gradsieve::codec::cuda

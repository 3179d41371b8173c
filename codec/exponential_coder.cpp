#include "codec/exponential_coder.hpp"

#include "codec/dither_coder.hpp"
#include "codec/payload.hpp"
#include "codec/quantize.hpp"

#include <algorithm>

namespace gradsieve::codec {
namespace {

/// The part of a step that all tiles share.
ExponentialStep shared_step(const ExponentialRule& rule, const RandomStream& random) noexcept {
    ExponentialStep step;
    step.per_bit = rule.per_bit;
    step.levels = static_cast<std::int32_t>(rule.dither.levels);
    step.bits = rule.dither.bits;
    step.is_biased = rule.is_biased;
    step.random = random_rounds(random);
    step.above[0] = 1;
    for (std::uint32_t depth = 0; depth < rule.dither.levels; ++depth)
        step.above[depth + 1] = exponential_level(rule.base, depth);
    return step;
}

}  // namespace

ExponentialRule exponential_rule(const Quantizer& quantizer, bool is_list) noexcept {
    ExponentialRule rule;
    rule.dither = dither_rule(quantizer, is_list);
    rule.dither.is_scaled = rule.dither.is_scaled && !quantizer.is_biased;
    rule.base = static_cast<float>(quantizer.base);
    rule.is_biased = quantizer.is_biased;
    rule.is_fixed = quantizer.is_fixed;
    rule.per_bit = depth_per_bit(rule.base);
    return rule;
}

float code_exponential_tile(const ExponentialRule& rule, std::span<const float> values, const RandomStream& random,
                            ElementCount first_element, const PayloadKernels& kernels, std::byte* ret_codes,
                            float* ret_decoded, float* ret_left) noexcept {
    const DitherUnit unit = exponential_unit(rule, measure_tile(rule.dither, values, kernels));
    if (!(unit.scale > 0.0F)) {
        std::fill_n(ret_codes, bytes_of_bits(values.size() * rule.dither.bits), std::byte{0});
        if (ret_left != nullptr) std::copy(values.begin(), values.end(), ret_left);
        if (ret_decoded != nullptr) std::fill_n(ret_decoded, values.size(), 0.0F);
        return 0;
    }
    ExponentialStep step = shared_step(rule, random);
    step.to_levels = unit.to_levels;
    step.scale = unit.scale;
    step.first_element = first_element;
    kernels.exponential_dense(step, values.data(), static_cast<std::uint32_t>(values.size()), ret_codes, ret_decoded,
                              ret_left);
    return unit.scale;
}

std::uint32_t exponential_chunk_list(const Quantizer& quantizer, std::span<const std::uint32_t> indices,
                                     std::span<const float> values, const RandomStream& random,
                                     ElementCount first_element, const PayloadKernels& kernels, float* ret_decoded,
                                     std::uint8_t* ret_codes, float* ret_scales) {
    const ExponentialRule rule = exponential_rule(quantizer, true);
    ExponentialStep step = shared_step(rule, random);
    step.first_element = first_element;
    std::uint32_t sent = 0;
    for (std::uint32_t first = 0; first < indices.size();) {
        const std::uint32_t end = tile_run_end(indices, first);
        const auto run = values.subspan(first, end - first);
        const DitherUnit unit = exponential_unit(rule, measure_tile(rule.dither, run, kernels));
        if (unit.scale > 0.0F) {
            step.to_levels = unit.to_levels;
            step.scale = unit.scale;
            ret_scales[indices[first] / kTileElements] = unit.scale;
            sent += kernels.exponential_list(step, run.data(), indices.data() + first, end - first, ret_decoded + first,
                                             ret_codes + first);
        } else {
            std::fill_n(ret_decoded + first, run.size(), 0.0F);
        }
        first = end;
    }
    return sent;
}

void list_exponential_values(std::uint32_t bits, float base, float scale, float* ret_values) noexcept {
    for (std::uint32_t code = 0; code < 1U << bits; ++code)
        ret_values[code] = element::float_of(exponential_decoded_bits(code, bits, base, scale));
}

}  // namespace gradsieve::codec

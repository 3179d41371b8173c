#include "codec/dither_coder.hpp"

#include "codec/quantize.hpp"

#include <algorithm>

namespace gradsieve::codec {

DitherRule dither_rule(const Quantizer& quantizer, bool is_list) noexcept {
    DitherRule rule;
    rule.levels = static_cast<std::uint32_t>(quantizer.levels);
    rule.bits = code_bits(quantizer);
    rule.is_max_norm = quantizer.norm == Norm::kMax;
    rule.is_scaled = quantizer.feedback == Feedback::kScaled;
    rule.is_list = is_list;
    rule.clip = static_cast<float>(quantizer.clip);
    return rule;
}

std::optional<DitherStep> dither_step(const DitherRule& rule, const DitherTile& tile, const RandomStream& random,
                                      ElementCount first_element) noexcept {
    const DitherUnit unit = dither_unit(rule, tile);
    if (!(unit.scale > 0.0F)) return std::nullopt;
    DitherStep step;
    step.to_levels = unit.to_levels;
    step.most = static_cast<float>(rule.levels << kLevelFractionBits);
    step.scale = unit.scale;
    step.bits = rule.bits;
    step.random = random_rounds(random);
    step.first_element = first_element;
    return step;
}

DitherTile measure_tile(const DitherRule& rule, std::span<const float> values, const PayloadKernels& kernels) noexcept {
    const auto count = static_cast<std::uint32_t>(values.size());
    return {count, element::float_of(kernels.largest_magnitude(values.data(), count)),
            needs_squares(rule) ? kernels.square_sum(values.data(), count) : 0.0};
}

std::uint32_t dither_chunk_list(const Quantizer& quantizer, std::span<const std::uint32_t> indices,
                                std::span<const float> values, const RandomStream& random, ElementCount first_element,
                                const PayloadKernels& kernels, float* ret_decoded, std::uint8_t* ret_codes,
                                float* ret_scales) {
    const DitherRule rule = dither_rule(quantizer, true);
    std::uint32_t sent = 0;
    for (std::uint32_t first = 0; first < indices.size();) {
        const std::uint32_t end = tile_run_end(indices, first);
        const auto run = values.subspan(first, end - first);
        const auto step = dither_step(rule, measure_tile(rule, run, kernels), random, first_element);
        if (step) {
            ret_scales[indices[first] / kTileElements] = step->scale;
            sent += kernels.dither_list(*step, run.data(), indices.data() + first, end - first, ret_decoded + first,
                                        ret_codes + first);
        } else {
            std::fill_n(ret_decoded + first, run.size(), 0.0F);
        }
        first = end;
    }
    return sent;
}

}  // namespace gradsieve::codec

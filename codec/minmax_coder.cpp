#include "codec/minmax_coder.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gradsieve::codec {

std::uint32_t bucket_log2(const Quantizer& quantizer) noexcept {
    return static_cast<std::uint32_t>(std::countr_zero(static_cast<std::uint32_t>(quantizer.bucket)));
}

void code_minmax_tile(const Quantizer& quantizer, std::span<const float> values, const RandomStream& random,
                      ElementCount first_element, const PayloadKernels& kernels, std::byte* ret_ranges,
                      std::byte* ret_codes, float* ret_decoded, float* ret_left) noexcept {
    const auto bucket = static_cast<std::size_t>(quantizer.bucket);
    MinMaxStep step;
    step.bits = code_bits(quantizer);
    step.most = minmax_most(step.bits);
    step.random = random_rounds(random);
    for (std::size_t first = 0; first < values.size(); first += bucket) {
        const auto count = static_cast<std::uint32_t>(std::min(bucket, values.size() - first));
        float least = 0;
        float largest = 0;
        kernels.find_range(values.data() + first, count, &least, &largest);
        const MinMaxRange range = minmax_range(least, largest);
        double z = 1.0;
        if (quantizer.feedback == Feedback::kScaled) {
            const float units = square_units(range);
            z = minmax_bound(range, step.bits, count, kernels.whole_squares(values.data() + first, count, units));
        }
        step.unit = minmax_unit(range, step.bits, z);
        step.step_size = minmax_step_size(step.unit.sent_low, step.unit.sent_high, step.bits);
        step.first_element = first_element + first;
        std::memcpy(ret_ranges, &step.unit.sent_low, sizeof(float));
        std::memcpy(ret_ranges + sizeof(float), &step.unit.sent_high, sizeof(float));
        ret_ranges += 2 * sizeof(float);
        kernels.minmax_dense(step, values.data() + first, count, ret_codes + first / 8 * step.bits,
                             ret_decoded == nullptr ? nullptr : ret_decoded + first,
                             ret_left == nullptr ? nullptr : ret_left + first);
    }
}

void list_minmax_values(std::uint32_t bits, float low, float high, float* ret_values) noexcept {
    const float step_size = minmax_step_size(low, high, bits);
    for (std::uint32_t level = 0; level <= minmax_steps(bits); ++level)
        ret_values[level] = minmax_decoded(level, low, step_size);
}

}  // namespace gradsieve::codec

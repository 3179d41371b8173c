#include "codec/quantize.hpp"

#include "codec/payload.hpp"
#include "codec/payload_kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace gradsieve::codec {
namespace {

std::uint32_t send_exact(std::span<const float> values, std::span<float> ret_decoded) noexcept {
    std::uint32_t sent = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const bool is_sent = values[i] != 0.0F;
        ret_decoded[i] = is_sent ? values[i] : 0.0F;  // -0 becomes +0: the mark of what is not sent
        sent += is_sent ? 1U : 0U;
    }
    return sent;
}

template <typename Round>
std::uint32_t send_rounded(std::span<const float> values, std::span<float> ret_decoded, Round round) noexcept {
    std::uint32_t sent = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const float rounded = round(values[i]);
        const bool is_sent = rounded != 0.0F;
        ret_decoded[i] = is_sent ? rounded : 0.0F;
        sent += is_sent ? 1U : 0U;
    }
    return sent;
}

// The mean over the elements that are not zero, in list order, as the far side will have it.
float list_scale(std::span<const float> values, const PayloadKernels& kernels) noexcept {
    std::array<float, kTileElements> present;
    std::uint32_t count = 0;
    for (const float value : values)
        if (value != 0.0F) present[count++] = value;
    if (count == 0) return 0.0F;
    const double mean = kernels.magnitude_sum(present.data(), count) / static_cast<double>(count);
    return float_of_bf16(bf16_of(static_cast<float>(mean)));
}

std::uint32_t send_sign(std::span<const float> values, float scale, float* ret_decoded) noexcept {
    std::uint32_t sent = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const bool is_sent = values[i] != 0.0F && scale > 0.0F;
        ret_decoded[i] = is_sent ? (values[i] < 0.0F ? -scale : scale) : 0.0F;
        sent += is_sent ? 1U : 0U;
    }
    return sent;
}

/// Signs of all, zeros as positive ones.
void send_every_sign(std::span<const float> values, float scale, float* ret_decoded) noexcept {
    for (std::size_t i = 0; i < values.size(); ++i)
        ret_decoded[i] = !(scale > 0.0F) ? 0.0F : values[i] < 0.0F ? -scale : scale;
}

}  // namespace

std::uint32_t tile_run_end(std::span<const std::uint32_t> indices, std::uint32_t first) noexcept {
    const std::uint32_t tile_end = (indices[first] | static_cast<std::uint32_t>(kTileElements - 1)) + 1;
    constexpr std::size_t kStride = 16;
    std::size_t end = first;
    while (end + kStride <= indices.size() && indices[end + kStride - 1] < tile_end) end += kStride;
    // Counted rather than searched for: the length of a run cannot be guessed.
    const std::size_t last = std::min(end + kStride, indices.size());
    std::uint32_t inside = 0;
    for (std::size_t i = end; i < last; ++i) inside += indices[i] < tile_end ? 1U : 0U;
    return static_cast<std::uint32_t>(end) + inside;
}

void sign_every(const Quantizer& quantizer, std::span<const std::uint32_t> indices, std::span<const float> values,
                const PayloadKernels& kernels, std::span<float> ret_decoded) noexcept {
    for (std::uint32_t first = 0; first < indices.size();) {
        const std::uint32_t end = tile_run_end(indices, first);
        const auto run = values.subspan(first, end - first);
        const double sum = quantizer.tau > 0 ? 0 : kernels.magnitude_sum(run.data(), end - first);
        const auto mean = static_cast<float>(sum / static_cast<double>(end - first));
        send_every_sign(run, quantizer.tau > 0 ? static_cast<float>(quantizer.tau) : float_of_bf16(bf16_of(mean)),
                        ret_decoded.data() + first);
        first = end;
    }
}

std::uint32_t quantize_list(const Quantizer& quantizer, std::span<const std::uint32_t> indices,
                            std::span<const float> values, float tensor_maximum, const PayloadKernels& kernels,
                            std::span<float> ret_decoded, std::uint8_t* ret_codes) {
    if (quantizer.kind == QuantizerKind::kF32) return send_exact(values, ret_decoded);
    if (quantizer.kind == QuantizerKind::kBf16)
        return send_rounded(values, ret_decoded, [](float value) { return float_of_bf16(bf16_of(value)); });
    if (quantizer.kind == QuantizerKind::kF16)
        return send_rounded(values, ret_decoded, [](float value) {
            return std::bit_cast<float>(element::f16_value_bits(element::f16_bits(value)));
        });
    if (quantizer.kind == QuantizerKind::kSign && quantizer.tau > 0)
        return send_sign(values, static_cast<float>(quantizer.tau), ret_decoded.data());
    std::uint32_t sent = 0;
    for (std::uint32_t first = 0; first < indices.size();) {
        const std::uint32_t end = tile_run_end(indices, first);
        const auto run = values.subspan(first, end - first);
        float* decoded = ret_decoded.data() + first;
        if (quantizer.kind == QuantizerKind::kSign) {
            sent += send_sign(run, list_scale(run, kernels), decoded);
        } else {
            const std::uint32_t top = quantizer.scope == Scope::kTensor
                                          ? biased_exponent(tensor_maximum)
                                          : kernels.largest_magnitude(run.data(), end - first) >> 23U;
            if (top == 0)
                std::fill_n(decoded, run.size(), 0.0F);  // all zero or subnormal
            else
                sent += kernels.quantize_pow2(run.data(), end - first, top, static_cast<unsigned>(quantizer.bits),
                                              decoded, ret_codes + first);
        }
        first = end;
    }
    return sent;
}

}  // namespace gradsieve::codec

#include "codec/stages/two_mean.hpp"

#include "codec/dense_coder.hpp"
#include "codec/payload.hpp"
#include "codec/payload_kernels.hpp"
#include "codec/quantize.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/sign_values.hpp"

#include <array>

namespace gradsieve::codec {
namespace {

TwoMeans list_means(std::span<const float> values, const PayloadKernels& kernels) noexcept {
    std::array<float, kTileElements> present;
    std::size_t count = 0;
    for (const float value : values)
        if (value != 0.0F) present[count++] = value;
    TwoMeans means = two_means_of(std::span(present).first(count), kernels);
    for (float& mean : means.of) mean = float_of_bf16(bf16_of(mean));
    return means;
}

class TwoMeanCoder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return 1; }
    DenseRule dense_rule(const Quantizer& /*quantizer*/) const noexcept override { return DenseRule::kTwoMean; }
    Status read_value_byte(std::uint8_t byte, PayloadHeader& inout_header) const override {
        return read_plain_sign_byte(byte, inout_header);
    }

    std::uint32_t code_list(const ListJob& job) const override {
        return two_mean_chunk_list(job.indices, job.values, *job.scratch.kernels, job.ret_decoded.data(),
                                   job.scratch.scales.data());
    }
    std::byte* write_values(const PayloadHeader& /*header*/, const SentList& sent, const CodeScratch& /*scratch*/,
                            std::byte* out) const override {
        return write_signs(sent.decoded, out);
    }

    void code_tile(const TileJob& job) const override {
        const TwoMeans means = two_means_of(job.values, job.kernels);
        job.payload.write_scales(job.tile, means);
        code_sign_tile(job, {means.of[0], means.of[1]});
    }
    void measure(const TileJob& job, double /*magnitude_sum*/, HeldTile& inout_held) const override {
        const TwoMeans means = two_means_of(job.values, job.kernels);
        inout_held.scale = means.of[0];
        inout_held.negative_scale = means.of[1];
        job.payload.write_scales(job.tile, means);
    }
    void settle(const HeldTile& held, std::uint32_t count, const PayloadKernels& kernels) const override {
        kernels.settle_signs(held.values, count, held.scale, held.negative_scale, held.codes, held.residual_out);
    }

    Status read_list(const PayloadHeader& header, TileTable& inout_tiles, SectionReader sections,
                     DecodedList& ret_list) const override {
        return read_scaled_signs(header, inout_tiles, sections, ret_list);
    }
    DenseTerm term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& /*room*/) const override {
        const std::size_t tile = first / kTileElements;
        return {DenseTerm::Kind::kSign, factor * view.scale_of(tile, 0), view.values.data() + first / 8,
                factor * view.scale_of(tile, 1)};
    }
};
constexpr TwoMeanCoder kOwnCoder;

}  // namespace

const QuantizerCoder& stages::TwoMean::kCoder = kOwnCoder;

TwoMeans two_means_of(std::span<const float> values, const PayloadKernels& kernels) noexcept {
    const auto count = static_cast<std::uint32_t>(values.size());
    const SideSums sides = kernels.side_sums(values.data(), count);
    return {{mean_of_side(sides.sums[0], count - sides.negatives), mean_of_side(sides.sums[1], sides.negatives)}};
}

std::uint32_t two_mean_chunk_list(std::span<const std::uint32_t> indices, std::span<const float> values,
                                  const PayloadKernels& kernels, float* ret_decoded, float* ret_scales) {
    std::uint32_t sent = 0;
    for (std::uint32_t first = 0; first < indices.size();) {
        const std::uint32_t end = tile_run_end(indices, first);
        const TwoMeans means = list_means(values.subspan(first, end - first), kernels);
        float* scales = ret_scales + std::size_t{2} * (indices[first] / kTileElements);
        scales[0] = means.of[0];
        scales[1] = means.of[1];
        for (; first < end; ++first) {
            const float value = values[first];
            const float size = means.of[value < 0.0F ? 1 : 0];
            const bool is_sent = value != 0.0F && size > 0.0F;
            ret_decoded[first] = is_sent ? (value < 0.0F ? -size : size) : 0.0F;
            sent += is_sent ? 1U : 0U;
        }
    }
    return sent;
}

}  // namespace gradsieve::codec

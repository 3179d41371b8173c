#include "codec/stages/dither.hpp"

#include "codec/dense_coder.hpp"
#include "codec/dither_coder.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage_text.hpp"

#include <algorithm>
#include <bit>

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    const double levels = arguments.number("levels", 7, kLevels);
    ret_quantizer.norm = static_cast<Norm>(arguments.word("norm", 0, kNormNames));
    ret_quantizer.feedback = read_feedback(arguments, selector);
    return read_whole(arguments, levels, "codec stage dither: levels", kLevels, ret_quantizer.levels);
}

std::string arguments_text(const Pipeline& pipeline, Knobs /*knobs*/) {
    const Quantizer& quantizer = pipeline.quantizer;
    return "levels=" + std::to_string(quantizer.levels) +
           ", norm=" + std::string(kNormNames[static_cast<std::size_t>(quantizer.norm)]) + ", " +
           feedback_text(quantizer.feedback);
}

/// Clipped, its name is ternary.
bool is_name_of(const Quantizer& quantizer) { return quantizer.kind == Dither::kFacts.kind && quantizer.clip == 0; }

class DitherCoder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& quantizer) const noexcept override {
        return 1 + static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(quantizer.levels)));
    }
    DenseRule dense_rule(const Quantizer& quantizer) const noexcept override {
        return quantizer.feedback == Feedback::kNone ? DenseRule::kDitherMean : DenseRule::kDither;
    }
    float largest_scale(std::uint32_t code_bits) const noexcept override { return largest_dither_scale(code_bits); }

    std::uint32_t code_list(const ListJob& job) const override {
        return dither_chunk_list(job.quantizer, job.indices, job.values, job.random, job.first_element,
                                 *job.scratch.kernels, job.ret_decoded.data(), job.scratch.codes.data(),
                                 job.scratch.scales.data());
    }
    void code_tile(const TileJob& job) const override {
        const auto step = step_of(job);
        job.payload.write_scale(job.tile, step ? step->scale : 0.0F);
        std::byte* codes = job.payload.tile_codes(job.tile);
        if (step) {
            job.kernels.dither_dense(*step, job.values.data(), static_cast<std::uint32_t>(job.values.size()), codes,
                                     job.ret_decoded, nullptr);
            return;
        }
        std::fill_n(codes, job.payload.tile_bytes(job.values.size()), std::byte{0});
        std::fill_n(job.ret_decoded, job.values.size(), 0.0F);
    }
    void measure(const TileJob& job, double /*magnitude_sum*/, HeldTile& inout_held) const override {
        const auto step = step_of(job);
        if (step) inout_held.dither = *step;
        inout_held.scale = step ? step->scale : 0.0F;
        job.payload.write_scale(job.tile, inout_held.scale);
    }
    void settle(const HeldTile& held, std::uint32_t count, const PayloadKernels& kernels) const override {
        kernels.dither_dense(held.dither, held.values, count, held.codes, nullptr, held.residual_out);
    }

    Status read_list(const PayloadHeader& header, TileTable& inout_tiles, SectionReader sections,
                     DecodedList& ret_list) const override {
        const PayloadKernels& kernels = payload_kernels();
        const auto decode = [&](std::uint32_t count, const std::uint8_t* codes, float scale, float* ret_values) {
            kernels.decode_levels(codes, count, header.code_bits, scale, ret_values);
        };
        return read_scaled_codes(header, inout_tiles, sections, ret_list, decode);
    }
    DenseTerm term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& /*room*/) const override {
        const std::uint32_t bits = view.header.code_bits;
        return {DenseTerm::Kind::kDither, factor, view.values.data() + std::size_t{first} / 8 * bits,
                view.scale_of(first / kTileElements), bits};
    }

private:
    static std::optional<DitherStep> step_of(const TileJob& job) noexcept {
        const DitherRule rule = dither_rule(job.quantizer, false);
        return dither_step(rule, measure_tile(rule, job.values, job.kernels), job.random, job.first_element);
    }
};
constexpr DitherCoder kOwnCoder;

}  // namespace

const QuantizerCoder& Dither::kCoder = kOwnCoder;

const QuantizerStage Dither::kStage = {
    .row = StageRow{"dither", "quantizer", "levels=7, norm=max|l2, feedback=scaled|unscaled|none", "tile", "-",
                    "standard dithering: magnitudes over the tile's norm, rounded at random to 0 to `levels` steps "
                    "without bias, 1 + ceil(log2(levels + 1)) bits; times 1/z where the error is fed back (scaled); "
                    "none: nothing is kept",
                    "Alistarh, Grubic, Li, Tomioka, Vojnovic 2017, QSGD, arXiv:1610.02132; random numbers of Salmon, "
                    "Moraes, Dror, Shaw 2011, Parallel Random Numbers: As Easy as 1, 2, 3 (Philox4x32-10)"},
    .kind = kFacts.kind,
    .read = read,
    .arguments = arguments_text,
    .is_name_of = is_name_of,
};

}  // namespace gradsieve::codec::stages

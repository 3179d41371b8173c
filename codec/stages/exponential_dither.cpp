#include "codec/stages/exponential_dither.hpp"

#include "codec/dense_coder.hpp"
#include "codec/exponential_coder.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage_text.hpp"

#include <bit>
#include <cmath>

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    const double levels = arguments.number("levels", 7, kLevels);
    ret_quantizer.base = static_cast<float>(arguments.number("base", 2, kBase));
    ret_quantizer.is_biased = arguments.word("mode", 0, kRoundingNames) == 1;
    ret_quantizer.norm = static_cast<Norm>(arguments.word("norm", 0, kNormNames));
    GRADSIEVE_TRY(read_feedback_of_mode("exponential_dither", arguments, selector, ret_quantizer));
    GRADSIEVE_TRY(
        read_whole(arguments, levels, "codec stage exponential_dither: levels", kLevels, ret_quantizer.levels));
    if ((levels - 1) * std::log2(ret_quantizer.base) <= kMostOctaves) return {};
    return bad_text("codec stage exponential_dither: levels", number_text(levels),
                    "base^(levels - 1) up to 2^126, so that every level is a normal number",
                    "write fewer levels or a smaller base");
}

std::string arguments_text(const Pipeline& pipeline, Knobs /*knobs*/) {
    const Quantizer& quantizer = pipeline.quantizer;
    return "levels=" + std::to_string(quantizer.levels) + ", base=" + float_text(quantizer.base) + ", " +
           mode_text(quantizer, ", norm=" + std::string(kNormNames[static_cast<std::size_t>(quantizer.norm)]));
}

/// With powers of its base as levels, its name is rounding.
bool is_name_of(const Quantizer& quantizer) {
    return quantizer.kind == ExponentialDither::kFacts.kind && !quantizer.is_fixed;
}

class ExponentialCoder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& quantizer) const noexcept override {
        return 1 + static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(quantizer.levels)));
    }
    DenseRule dense_rule(const Quantizer& quantizer) const noexcept override {
        return is_random(quantizer) && quantizer.feedback == Feedback::kNone ? DenseRule::kDitherMean
                                                                             : DenseRule::kDither;
    }

    void fill_header(const Quantizer& quantizer, PayloadHeader& inout_header) const noexcept override {
        inout_header.base = static_cast<float>(quantizer.base);
    }
    Status check_fields(const PayloadHeader& header) const override {
        if (header.base >= kLeastBase && header.base <= kMostBase) return {};
        return corrupt_payload("base", std::to_string(header.base), "1.1 to 16");
    }

    std::uint32_t code_list(const ListJob& job) const override {
        return exponential_chunk_list(job.quantizer, job.indices, job.values, job.random, job.first_element,
                                      *job.scratch.kernels, job.ret_decoded.data(), job.scratch.codes.data(),
                                      job.scratch.scales.data());
    }
    void code_tile(const TileJob& job) const override {
        const ExponentialRule rule = exponential_rule(job.quantizer, false);
        job.payload.write_scale(job.tile,
                                code_exponential_tile(rule, job.values, job.random, job.first_element, job.kernels,
                                                      job.payload.tile_codes(job.tile), job.ret_decoded, job.ret_left));
    }

    Status read_list(const PayloadHeader& header, TileTable& inout_tiles, SectionReader sections,
                     DecodedList& ret_list) const override {
        const auto decode = [&](std::uint32_t count, const std::uint8_t* codes, float scale, float* ret_values) {
            std::array<float, 256> table;
            list_exponential_values(header.code_bits, header.base, scale, table.data());
            for (std::uint32_t element = 0; element < count; ++element) ret_values[element] = table[codes[element]];
        };
        return read_scaled_codes(header, inout_tiles, sections, ret_list, decode);
    }
    DenseTerm term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& room) const override {
        const PayloadHeader& header = view.header;
        list_exponential_values(header.code_bits, header.base, view.scale_of(first / kTileElements), room.table.data());
        return table_term(view, factor, first, room);
    }
};
constexpr ExponentialCoder kOwnCoder;

}  // namespace

const QuantizerCoder& ExponentialDither::kCoder = kOwnCoder;

const QuantizerStage ExponentialDither::kStage = {
    .row =
        StageRow{
            "exponential_dither", "quantizer",
            "levels=7, base=2, mode=unbiased|biased, norm=max|l2, feedback=scaled|unscaled|none", "tile", "-",
            "magnitudes over the tile's norm, rounded to 1, 1/base, ..., base^(1-levels) or 0, at random without bias "
            "or to the nearer one, 1 + ceil(log2(levels + 1)) bits; base 2 is natural dithering; times 1/z where the "
            "error is fed back (scaled); none: nothing is kept",
            "Horvath, Ho, Horvath, Sahu, Canini, Richtarik 2019, Natural Compression for Distributed Deep Learning, "
            "arXiv:1905.10988"},
    .kind = kFacts.kind,
    .read = read,
    .arguments = arguments_text,
    .is_name_of = is_name_of,
};

}  // namespace gradsieve::codec::stages

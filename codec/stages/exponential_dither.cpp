#include "codec/stages/exponential_dither.hpp"

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

#include "codec/stages/dither.hpp"

#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage_text.hpp"

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
};
constexpr DitherCoder kOwnCoder;

}  // namespace

const QuantizerCoder& Dither::kCoder = kOwnCoder;

const QuantizerStage Dither::kStage = {
    .row =
        StageRow{"dither", "quantizer", "levels=7, norm=max|l2, feedback=scaled|unscaled|none", "tile", "-",
                 "standard dithering: magnitudes over the tile's norm, rounded at random to 0 to `levels` steps "
                 "without bias, 1 "
                 "+ "
                 "ceil(log2(levels + 1)) bits; times 1/z where the error is fed back (scaled); none: nothing is kept",
                 "Alistarh, Grubic, Li, Tomioka, Vojnovic 2017, QSGD, arXiv:1610.02132; random numbers of Salmon, "
                 "Moraes, Dror, "
                 "Shaw 2011, Parallel Random Numbers: As Easy as 1, 2, 3 (Philox4x32-10)"},
    .kind = kFacts.kind,
    .read = read,
    .arguments = arguments_text,
    .is_name_of = is_name_of,
};

}  // namespace gradsieve::codec::stages

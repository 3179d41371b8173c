#include "codec/stages/natural.hpp"

#include "codec/dense_coder.hpp"
#include "codec/natural_coder.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    ret_quantizer.feedback = read_feedback(arguments, selector);
    return arguments.finish();
}

std::string arguments_text(const Pipeline& pipeline, Knobs /*knobs*/) {
    return feedback_text(pipeline.quantizer.feedback);
}

class NaturalCoder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return kNaturalCodeBits; }
    DenseRule dense_rule(const Quantizer& quantizer) const noexcept override {
        return quantizer.feedback == Feedback::kNone ? DenseRule::kNaturalMean : DenseRule::kNatural;
    }
    Status read_value_byte(std::uint8_t byte, PayloadHeader& inout_header) const override {
        const unsigned width_code = byte & 7U;
        GRADSIEVE_TRY(read_width(byte, inout_header));
        if (width_code != kNaturalCodeBits - 1)
            return corrupt_payload("natural width code", width_code, std::to_string(kNaturalCodeBits - 1));
        return QuantizerCoder::read_value_byte(byte, inout_header);
    }

    std::uint32_t code_list(const ListJob& job) const override {
        return job.scratch.kernels->natural_list(
            natural_step(job.quantizer, job.random, job.first_element), job.values.data(), job.indices.data(),
            static_cast<std::uint32_t>(job.indices.size()), job.ret_decoded.data(), job.scratch.codes.data());
    }
    void code_tile(const TileJob& job) const override {
        job.kernels.natural_dense(natural_step(job.quantizer, job.random, job.first_element), job.values.data(),
                                  static_cast<std::uint32_t>(job.values.size()), job.payload.tile_codes(job.tile),
                                  job.ret_decoded);
    }

    Status read_list(const PayloadHeader& header, TileTable& /*inout_tiles*/, SectionReader sections,
                     DecodedList& ret_list) const override {
        GRADSIEVE_TRY(sections.take_values(header));
        const ByteView codes = sections.rest();
        for (std::uint32_t element = 0; element < header.count; ++element)
            ret_list.values[element] =
                element::float_of(natural_decoded_bits(static_cast<std::uint32_t>(codes[element])));
        return {};
    }
    DenseTerm term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& /*room*/) const override {
        return {DenseTerm::Kind::kNatural, factor, view.values.data() + first};
    }
};
constexpr NaturalCoder kOwnCoder;

}  // namespace

const QuantizerCoder& Natural::kCoder = kOwnCoder;

const QuantizerStage Natural::kStage = {
    .row =
        StageRow{
            "natural", "quantizer", "feedback=scaled|unscaled|none", "element", "-",
            "natural compression: rounded at random to a power of two without bias, 8 bits; 2^-108 to 2^18, smaller "
            "ones are zero; times 8/9 where the error is fed back (scaled); none: nothing is kept",
            "Horvath, Ho, Horvath, Sahu, Canini, Richtarik 2019, Natural Compression for Distributed Deep Learning, "
            "arXiv:1905.10988; 8-bit code of GRACE, Xu et al. 2021"},
    .kind = kFacts.kind,
    .read = read,
    .arguments = arguments_text,
};

}  // namespace gradsieve::codec::stages

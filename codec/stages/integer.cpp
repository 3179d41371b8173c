#include "codec/stages/integer.hpp"

#include "codec/integer_coder.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage_text.hpp"

#include <algorithm>

namespace gradsieve::codec::stages {
namespace {

/// There is no z that its values could be divided by.
constexpr std::array<std::string_view, 2> kUnscaledNames = {"unscaled", "none"};

Status read(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    ret_quantizer.scale = arguments.number("scale", std::nullopt, kQuantum);
    ret_quantizer.is_biased = arguments.word("mode", 0, kRoundingNames) == 1;
    ret_quantizer.feedback = Feedback::kUnscaled;
    if (ret_quantizer.is_biased) {
        GRADSIEVE_TRY(read_feedback_of_mode("integer", arguments, selector, ret_quantizer));
    } else if (arguments.word("feedback", drops_errors(selector) ? 1 : 0, kUnscaledNames) == 1) {
        ret_quantizer.feedback = Feedback::kNone;
    }
    return arguments.finish();
}

std::string arguments_text(const Pipeline& pipeline, Knobs knobs) {
    return "scale=" + knob_text(pipeline.quantizer.scale, knobs) + ", " + mode_text(pipeline.quantizer, "");
}

class IntegerCoder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return 0; }
    /// How long they are, gradients decide; those of a few steps cost this.
    double expected_bits(const Quantizer& /*quantizer*/) const noexcept override { return 4; }
    DenseRule dense_rule(const Quantizer& quantizer) const noexcept override {
        return quantizer.feedback == Feedback::kNone ? DenseRule::kDitherMean : DenseRule::kDither;
    }

    void fill_header(const Quantizer& quantizer, PayloadHeader& inout_header) const noexcept override {
        inout_header.step = integer_step_size(static_cast<float>(quantizer.scale));
    }
    Status read_value_byte(std::uint8_t byte, PayloadHeader& inout_header) const override {
        if (byte >> 6U != 0) return corrupt_payload("reserved value bits", byte >> 6U, "0");
        inout_header.code_bits = (byte & 31U) + 1U;
        if (inout_header.code_bits < kLeastIntegerBits || inout_header.code_bits > kMostIntegerBits)
            return corrupt_payload("integer width code", byte & 31U, "1 to 23");
        inout_header.is_coded = (byte & kCodedValues) != 0;
        if (inout_header.is_coded && inout_header.code_bits > kMostCodedBits)
            return corrupt_payload("coded values of bits", inout_header.code_bits, "2 to 8");
        return {};
    }
    Status check_fields(const PayloadHeader& header) const override {
        if (header.step >= kLeastStep && header.step <= kMostStep) return {};
        return corrupt_payload("step of integers", std::to_string(header.step), "2^-100 to 2^100");
    }

    std::uint32_t code_list(const ListJob& job) const override {
        return job.scratch.kernels->integer_list(
            integer_step(job.quantizer, job.random, job.first_element), job.values.data(), job.indices.data(),
            static_cast<std::uint32_t>(job.indices.size()), job.ret_decoded.data(), job.scratch.integers.data());
    }
    /// How long codes are follows from those of the chunk.
    void settle_header(const SentList& sent, const CodeScratch& scratch, PayloadHeader& inout_header) const override {
        inout_header.code_bits =
            integer_bits(integer_magnitudes(std::span(scratch.integers).first(sent.indices.size())));
    }
    std::byte* write_values(const PayloadHeader& header, const SentList& sent, const CodeScratch& scratch,
                            std::byte* out) const override {
        return build_integers(std::span(scratch.integers).first(sent.indices.size()), header.code_bits,
                              *scratch.kernels, out);
    }

    std::uint32_t code_words(const WordsJob& job) const override {
        return job.kernels.integer_dense(integer_step(job.quantizer, job.random, job.first_element), job.values.data(),
                                         static_cast<std::uint32_t>(job.values.size()), job.ret_codes, job.ret_decoded,
                                         job.ret_left);
    }
    PayloadBytes build_chunk(const Quantizer& quantizer, std::span<const std::uint32_t> codes, std::uint32_t magnitudes,
                             const PayloadPool& pool, const PayloadKernels& kernels) const override {
        return build_dense_integers(quantizer, codes, magnitudes, pool, kernels);
    }

    Status read_list(const PayloadHeader& header, TileTable& /*inout_tiles*/, SectionReader sections,
                     DecodedList& ret_list) const override {
        GRADSIEVE_TRY(sections.take_values(header));
        read_integers(sections.rest(), 0, header.count, header.code_bits, header.step, ret_list.values.data());
        return {};
    }
    DenseTerm term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& room) const override {
        if (room.values.size() < kTileElements) room.values.resize(kTileElements);
        const auto count = static_cast<std::uint32_t>(std::min<ElementCount>(kTileElements, view.elements - first));
        read_integers(view.values, first, count, view.header.code_bits, view.header.step, room.values.data());
        return {DenseTerm::Kind::kF32, factor, reinterpret_cast<const std::byte*>(room.values.data())};
    }
};
constexpr IntegerCoder kOwnCoder;

}  // namespace

const QuantizerCoder& Integer::kCoder = kOwnCoder;

const QuantizerStage Integer::kStage = {
    .row =
        StageRow{
            "integer", "quantizer", "scale, mode=unbiased|biased, feedback=unscaled|none", "element", "-",
            "rounded to a whole number over `scale`, at random without bias or to the nearer one, so less than 1/scale "
            "away, or at most half of that; as many bits as the chunk's largest takes, 2 to 24; beyond 2^23 - 1 cut "
            "off; "
            "no finite z or delta bounds it, so it is in none of the classes and is not scaled; none: nothing is kept",
            "Scaled integer rounding of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410"},
    .kind = kFacts.kind,
    .read = read,
    .arguments = arguments_text,
};

}  // namespace gradsieve::codec::stages

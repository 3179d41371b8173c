#include "codec/stages/minmax.hpp"

#include "codec/dense_coder.hpp"
#include "codec/minmax_coder.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage_list.hpp"
#include "codec/stages/stage_text.hpp"

#include <bit>

namespace gradsieve::codec::stages {
namespace {

constexpr NumberRange kBucket = {64, kTileElements, false, "a power of two in [64, 4096]"};

Status read(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    const double bits = arguments.number("bits", 4, kCodeBits);
    const double bucket = arguments.number("bucket", 512, kBucket);
    ret_quantizer.feedback = read_feedback(arguments, selector);
    GRADSIEVE_TRY(read_whole(arguments, bits, "codec stage minmax: bits", kCodeBits, ret_quantizer.bits));
    ret_quantizer.bucket = static_cast<int>(bucket);
    if (bucket == ret_quantizer.bucket && std::has_single_bit(static_cast<std::uint32_t>(bucket))) return {};
    return bad_text("codec stage minmax: bucket", number_text(bucket), kBucket.text, "write e.g. minmax(4, 512)");
}

std::string arguments_text(const Pipeline& pipeline, Knobs /*knobs*/) {
    const Quantizer& quantizer = pipeline.quantizer;
    return "bits=" + std::to_string(quantizer.bits) + ", bucket=" + std::to_string(quantizer.bucket) + ", " +
           feedback_text(quantizer.feedback);
}

Status check(const Pipeline& pipeline) {
    if (sends_all(pipeline.selector)) return {};
    return bad_text("quantizer after " + std::string(name_of(pipeline.selector)), "minmax", "all | minmax",
                    "a range of a list's values has no level for zero that is kept: select with all, or quantize "
                    "with dither");
}

class MinMaxCoder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& quantizer) const noexcept override {
        return static_cast<std::uint32_t>(quantizer.bits);
    }
    double expected_bits(const Quantizer& quantizer) const noexcept override {
        return quantizer.bits + 64.0 / quantizer.bucket;
    }
    DenseRule dense_rule(const Quantizer& quantizer) const noexcept override {
        return quantizer.feedback == Feedback::kNone ? DenseRule::kDitherMean : DenseRule::kDither;
    }

    void fill_header(const Quantizer& quantizer, PayloadHeader& inout_header) const noexcept override {
        inout_header.bucket_log2 = bucket_log2(quantizer);
    }

    void code_tile(const TileJob& job) const override {
        code_minmax_tile(job.quantizer, job.values, job.random, job.first_element, job.kernels,
                         job.payload.tile_ranges(job.tile), job.payload.tile_codes(job.tile), job.ret_decoded,
                         job.ret_left);
    }

    Status check_scales(const PayloadView& view) const override {
        for (std::size_t bucket = 0; bucket < view.scales.size() / sizeof(MinMaxRange); ++bucket) {
            const MinMaxRange range = view.range_of(bucket);
            if (!is_minmax_range(range.low, range.high))
                return corrupt_payload("minimum and maximum",
                                       std::to_string(range.low) + ", " + std::to_string(range.high),
                                       "ascending, and at most 2^126 in magnitude");
        }
        return {};
    }
    DenseTerm term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& room) const override {
        const PayloadHeader& header = view.header;
        const MinMaxRange range = view.range_of(first >> header.bucket_log2);
        list_minmax_values(header.code_bits, range.low, range.high, room.table.data());
        return table_term(view, factor, first, room);
    }
};
constexpr MinMaxCoder kOwnCoder;

}  // namespace

const QuantizerCoder& MinMax::kCoder = kOwnCoder;

const QuantizerStage MinMax::kStage = {
    .row =
        StageRow{
            "minmax", "quantizer", "bits=4, bucket=512, feedback=scaled|unscaled|none", "bucket", "-",
            "rounded at random, without bias, to one of 2^bits levels between the least and the largest element of "
            "each bucket of so many, a power of two; behind all only; beyond 2^126 cut off; times 1/z where the "
            "error is fed back (scaled); none: nothing is kept",
            "Markov, Ramezanikebrya, Alistarh 2022, CGX, arXiv:2111.08617, max-min quantizer"},
    .kind = kFacts.kind,
    .read = read,
    .arguments = arguments_text,
    .check = check,
};

}  // namespace gradsieve::codec::stages

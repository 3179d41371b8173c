#include "codec/stages/sign.hpp"

#include "codec/dense_coder.hpp"
#include "codec/quantize.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/sign_values.hpp"
#include "codec/stages/stage_list.hpp"
#include "codec/stages/stage_text.hpp"
#include "codec/stages/two_mean.hpp"
#include "codec/stages/vote.hpp"

#include <algorithm>

namespace gradsieve::codec {
namespace stages {
namespace {

Status read(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) {
    const auto scale = arguments.take("scale");
    if (!scale || *scale == "mean") return arguments.finish();
    if (*scale == "two_mean") {
        ret_quantizer.kind = TwoMean::kFacts.kind;
    } else if (*scale == "none") {
        ret_quantizer.kind = Vote::kFacts.kind;
        ret_quantizer.feedback = Feedback::kNone;
    } else if (*scale == "drive") {
        ret_quantizer.feedback = Feedback::kNone;
    } else if (*scale == "tau") {
        ret_quantizer.tau = selector.tau;
        if (!has_tau(selector))
            return bad_text("codec stage sign: scale", "tau", "mean or a number after a selector without a tau",
                            "write the number, e.g. sign(scale=0.01), or select with variance_hybrid(0.01) or "
                            "threshold(0.01)");
    } else {
        ret_quantizer.tau = arguments.parse_number("scale", *scale, kQuantum);
    }
    return arguments.finish();
}

std::string arguments_text(const Pipeline& pipeline, Knobs knobs) {
    const Quantizer& quantizer = pipeline.quantizer;
    if (quantizer.kind == TwoMean::kFacts.kind) return "scale=two_mean";
    if (quantizer.kind == Vote::kFacts.kind) return "scale=none";
    if (quantizer.tau == 0) return has_drive_scale(quantizer) ? "scale=drive" : "scale=mean";
    const bool is_selector_s = has_tau(pipeline.selector) && quantizer.tau == pipeline.selector.tau;
    return "scale=" + (is_selector_s ? std::string("tau") : knob_text(quantizer.tau, knobs));
}

Status check(const Pipeline& pipeline) {
    const Quantizer& quantizer = pipeline.quantizer;
    if (quantizer.kind == Vote::kFacts.kind && !sends_all(pipeline.selector))
        return bad_text("codec stage sign: scale", "none", "mean, two_mean or a number after a selector but all",
                        "a sign without a size leaves nothing that a residual could keep: select with all, or give "
                        "the scale");
    return {};
}

bool is_name_of(const Quantizer& quantizer) {
    return quantizer.kind == Sign::kFacts.kind || quantizer.kind == TwoMean::kFacts.kind ||
           quantizer.kind == Vote::kFacts.kind;
}

class SignCoder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return 1; }
    DenseRule dense_rule(const Quantizer& /*quantizer*/) const noexcept override { return DenseRule::kSign; }

    void fill_header(const Quantizer& quantizer, PayloadHeader& inout_header) const noexcept override {
        if (!(quantizer.tau > 0)) return;
        inout_header.has_chunk_scale = true;
        inout_header.chunk_scale = static_cast<float>(quantizer.tau);
    }
    Status read_value_byte(std::uint8_t byte, PayloadHeader& inout_header) const override {
        GRADSIEVE_TRY(read_width(byte, inout_header));
        const unsigned scale_code = (byte >> 3U) & 3U;
        if (inout_header.code_bits != 1) return corrupt_payload("sign width code", inout_header.code_bits - 1, "0");
        if (scale_code > 1) return corrupt_payload("sign scale code", scale_code, "0 (per tile) or 1 (per chunk)");
        inout_header.has_chunk_scale = scale_code == 1;
        return {};
    }

    std::uint32_t code_list(const ListJob& job) const override {
        if (job.quantizer.tau > 0)
            return send_signs(job.values, static_cast<float>(job.quantizer.tau), job.ret_decoded.data());
        std::uint32_t sent = 0;
        for (std::uint32_t first = 0, end = 0; first < job.indices.size(); first = end) {
            end = tile_run_end(job.indices, first);
            const auto run = job.values.subspan(first, end - first);
            const float scale = list_scale(run, *job.scratch.kernels);
            job.scratch.scales[job.indices[first] / kTileElements] = scale;
            sent += send_signs(run, scale, job.ret_decoded.data() + first);
        }
        return sent;
    }
    /// Zeros as positive; with a mean magnitude of zero +0.
    void code_every(const ListJob& job) const override {
        for (std::uint32_t first = 0, end = 0; first < job.indices.size(); first = end) {
            end = tile_run_end(job.indices, first);
            const auto run = job.values.subspan(first, end - first);
            auto scale = static_cast<float>(job.quantizer.tau);
            if (!(scale > 0.0F)) {
                const double sum = job.scratch.kernels->magnitude_sum(run.data(), end - first);
                scale = float_of_bf16(bf16_of(static_cast<float>(sum / static_cast<double>(end - first))));
                job.scratch.scales[job.indices[first] / kTileElements] = scale;
            }
            for (std::size_t i = 0; i < run.size(); ++i)
                job.ret_decoded[first + i] = !(scale > 0.0F) ? 0.0F : run[i] < 0.0F ? -scale : scale;
        }
    }
    std::byte* write_values(const PayloadHeader& /*header*/, const SentList& sent, const CodeScratch& /*scratch*/,
                            std::byte* out) const override {
        return write_signs(sent.decoded, out);
    }

    void code_tile(const TileJob& job) const override {
        const double magnitudes =
            job.kernels.magnitude_sum(job.values.data(), static_cast<std::uint32_t>(job.values.size()));
        const float scale = tile_scale(job, magnitudes);
        code_sign_tile(job, {scale, scale});
    }
    void measure(const TileJob& job, double magnitude_sum, HeldTile& inout_held) const override {
        inout_held.scale = inout_held.negative_scale = tile_scale(job, magnitude_sum);
    }
    void settle(const HeldTile& held, std::uint32_t count, const PayloadKernels& kernels) const override {
        kernels.settle_signs(held.values, count, held.scale, held.negative_scale, held.codes, held.residual_out);
    }

    Status read_list(const PayloadHeader& header, TileTable& inout_tiles, SectionReader sections,
                     DecodedList& ret_list) const override {
        if (!header.has_chunk_scale) return read_scaled_signs(header, inout_tiles, sections, ret_list);
        GRADSIEVE_TRY(sections.take_values(header));
        read_signs(sections.rest(), 0, header.count, {header.chunk_scale, header.chunk_scale}, ret_list.values.data());
        return {};
    }
    DenseTerm term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& /*room*/) const override {
        const float size = factor * view.scale_of(first / kTileElements);
        return {DenseTerm::Kind::kSign, size, view.values.data() + first / 8, size};
    }

private:
    /// Of what the pass or a kernel added up, in fp64 as the format says; written unless the chunk has one for all.
    static float tile_scale(const TileJob& job, double magnitude_sum) {
        if (!has_drive_scale(job.quantizer)) return job.payload.write_mean(job.tile, magnitude_sum, job.values.size());
        const auto count = static_cast<std::uint32_t>(job.values.size());
        float scale = 0;
        if (magnitude_sum > 0)
            scale = static_cast<float>(job.kernels.square_sum(job.values.data(), count) / magnitude_sum);
        job.payload.write_scale(job.tile, scale);
        return scale;
    }
    /// The mean over the elements that are not zero, in list order, as the far side will have it: fp64 in the fixed
    /// tree of `magnitude_sum`, rounded to fp32 and then to bf16.
    static float list_scale(std::span<const float> values, const PayloadKernels& kernels) noexcept {
        std::array<float, kTileElements> present;
        std::uint32_t count = 0;
        for (const float value : values)
            if (value != 0.0F) present[count++] = value;
        if (count == 0) return 0.0F;
        const double mean = kernels.magnitude_sum(present.data(), count) / static_cast<double>(count);
        return float_of_bf16(bf16_of(static_cast<float>(mean)));
    }
    static std::uint32_t send_signs(std::span<const float> values, float scale, float* ret_decoded) noexcept {
        std::uint32_t sent = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const bool is_sent = values[i] != 0.0F && scale > 0.0F;
            ret_decoded[i] = is_sent ? (values[i] < 0.0F ? -scale : scale) : 0.0F;
            sent += is_sent ? 1U : 0U;
        }
        return sent;
    }
};
constexpr SignCoder kOwnCoder;

}  // namespace

const QuantizerCoder& Sign::kCoder = kOwnCoder;

const QuantizerStage Sign::kStage = {
    .row =
        StageRow{
            "sign", "quantizer", "scale=mean|two_mean|tau|NUMBER|drive|none", "tile", "-",
            "sign times the tile's mean magnitude, 1 bit; two_mean: the mean of the tile's negative elements, or of "
            "its "
            "others; tau: times the selector's tau; NUMBER: times that number; drive, after rotate: times the sum of "
            "squares over that of magnitudes, and nothing is kept; none: every node votes with its ranks' weight, +1 "
            "or "
            "-1 is the result, ties are +1, and nothing is kept",
            "Seide, Fu, Droppo, Li, Yu 2014, 1-Bit Stochastic Gradient Descent (two_mean); mean magnitude of "
            "Karimireddy "
            "et al. 2019, arXiv:1901.09847; drive: Vargaftik et al. 2021, DRIVE; vote of Bernstein, Zhao, "
            "Azizzadenesheli, Anandkumar 2018, arXiv:1810.05291",
            "gather; majority with none"},
    .kind = kFacts.kind,
    .read = read,
    .arguments = arguments_text,
    .check = check,
    .is_name_of = is_name_of,
};

}  // namespace stages

Quantizer tau_sign(const Selector& selector) {
    Quantizer sign;
    sign.kind = stages::Sign::kFacts.kind;
    sign.tau = selector.tau;
    return sign;
}

}  // namespace gradsieve::codec

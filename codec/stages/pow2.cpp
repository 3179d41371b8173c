#include "codec/stages/pow2.hpp"

#include "codec/quantize.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage_text.hpp"

#include <algorithm>

namespace gradsieve::codec::stages {
namespace {

constexpr std::array<std::string_view, 2> kScopeNames = {"tile", "tensor"};

Status read(ArgumentReader& arguments, const Selector& /*selector*/, Quantizer& ret_quantizer) {
    const double bits = arguments.number("bits", 4, kCodeBits);
    ret_quantizer.scope = static_cast<Scope>(arguments.word("scope", 0, kScopeNames));
    return read_whole(arguments, bits, "codec stage pow2: bits", kCodeBits, ret_quantizer.bits);
}

std::string arguments_text(const Pipeline& pipeline, Knobs /*knobs*/) {
    return "bits=" + std::to_string(pipeline.quantizer.bits) +
           ", scope=" + std::string(kScopeNames[static_cast<std::size_t>(pipeline.quantizer.scope)]);
}

class Pow2Coder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& quantizer) const noexcept override {
        return static_cast<std::uint32_t>(quantizer.bits);
    }
    /// Every element goes through a list.
    DenseRule dense_rule(const Quantizer& /*quantizer*/) const noexcept override { return DenseRule::kEverything; }
    SentGuess guess() const noexcept override { return kGuessPow2; }

    Status check_fields(const PayloadHeader& header) const override {
        if (header.base_exponent != 0 && header.base_exponent != 255) return {};
        return corrupt_payload("base exponent", header.base_exponent, "1 to 254");
    }

    /// E = floor(log2 of the largest magnitude); magnitudes above 2^E become 2^E, others the nearer power of two, the
    /// middle going up; not sent if more than 2^(bits-1) - 1 octaves below E, or subnormal. Codes: sign << (bits - 1) |
    /// octaves below the tile's exponent.
    std::uint32_t code_list(const ListJob& job) const override {
        const PayloadKernels& kernels = *job.scratch.kernels;
        const bool is_by_tensor = job.quantizer.scope == Scope::kTensor;
        std::uint32_t sent = 0;
        for (std::uint32_t first = 0, end = 0; first < job.indices.size(); first = end) {
            end = tile_run_end(job.indices, first);
            const auto run = job.values.subspan(first, end - first);
            float* decoded = job.ret_decoded.data() + first;
            const std::uint32_t top = is_by_tensor ? biased_exponent(job.tensor_maximum)
                                                   : kernels.largest_magnitude(run.data(), end - first) >> 23U;
            if (top == 0)
                std::fill_n(decoded, run.size(), 0.0F);  // all zero or subnormal
            else
                sent += kernels.quantize_pow2(run.data(), end - first, top, static_cast<unsigned>(job.quantizer.bits),
                                              decoded, job.scratch.codes.data() + first);
        }
        return sent;
    }
    std::byte* write_values(const PayloadHeader& header, const SentList& sent, const CodeScratch& scratch,
                            std::byte* out) const override {
        return header.is_paper_word() ? out : QuantizerCoder::write_values(header, sent, scratch, out);
    }

    Status read_list(const PayloadHeader& header, TileTable& inout_tiles, SectionReader sections,
                     DecodedList& ret_list) const override {
        std::size_t used_bytes = 0;
        GRADSIEVE_TRY(parse_exponents(header, sections.rest(), inout_tiles, used_bytes));
        sections.skip(used_bytes);
        GRADSIEVE_TRY(sections.take_values(header));
        if (!header.is_paper_word()) read_codes(sections.rest(), header.count, header.code_bits, ret_list.codes.data());
        const PayloadKernels& kernels = payload_kernels();
        for (std::uint32_t tile = 0, first = 0; tile < inout_tiles.count; first = inout_tiles.ends[tile++]) {
            if (!kernels.decode_pow2(ret_list.codes.data() + first, inout_tiles.ends[tile] - first,
                                     inout_tiles.exponents[tile], header.code_bits, ret_list.values.data() + first))
                return corrupt_payload("power of two", "below the normal range", "2^-126 or more");
        }
        return {};
    }
};
constexpr Pow2Coder kOwnCoder;

}  // namespace

const QuantizerCoder& Pow2::kCoder = kOwnCoder;

const QuantizerStage Pow2::kStage = {
    .row =
        StageRow{
            "pow2", "quantizer", "bits=4, scope=tile|tensor", "tile or tensor", "-",
            "sign and power of two, at most 2^(bits-1)-1 octaves below the tile's largest; smaller ones are not sent",
            "Tsuzuku et al. 2018, the 4-bit quantization (scale per tensor there: scope=tensor)"},
    .kind = kFacts.kind,
    .read = read,
    .arguments = arguments_text,
};

}  // namespace gradsieve::codec::stages

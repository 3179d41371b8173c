#include "codec/stages/bf16.hpp"

#include "codec/bit_stream.hpp"
#include "codec/dense_coder.hpp"
#include "codec/stages/float_values.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {
namespace {

class Bf16Coder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return 0; }
    double expected_bits(const Quantizer& /*quantizer*/) const noexcept override { return 16; }

    DenseRule dense_rule(const Quantizer& /*quantizer*/) const noexcept override { return DenseRule::kBf16; }

    std::uint32_t code_list(const ListJob& job) const override {
        return send_rounded(job, [](float value) { return float_of_bf16(bf16_of(value)); });
    }
    std::byte* write_values(const PayloadHeader& /*header*/, const SentList& sent, const CodeScratch& /*scratch*/,
                            std::byte* out) const override {
        BitPacker packer(out);
        for (const float value : sent.decoded) packer.put(std::bit_cast<std::uint32_t>(value) >> 16U, 16);
        return packer.end();
    }
    void code_tile(const TileJob& job) const override {
        job.kernels.round_bf16(job.values.data(), static_cast<std::uint32_t>(job.values.size()),
                               reinterpret_cast<std::uint16_t*>(job.payload.tile_codes(job.tile)), job.ret_decoded);
    }

    Status read_list(const PayloadHeader& header, TileTable& /*inout_tiles*/, SectionReader sections,
                     DecodedList& ret_list) const override {
        return read_floats(header, sections, ret_list.values.data(), bits_of);
    }
    bool has_finite_values(const PayloadView& view) const noexcept override { return are_finite(view, bits_of); }
    bool has_small_values(const PayloadView& view) const noexcept override { return are_small(view, bits_of); }
    DenseTerm term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& /*room*/) const override {
        return {DenseTerm::Kind::kBf16, factor, view.values.data() + std::size_t{first} * sizeof(std::uint16_t)};
    }

private:
    static std::uint32_t bits_of(const std::byte* values, std::size_t element) noexcept {
        return std::uint32_t{number_at<std::uint16_t>(values, element)} << 16U;
    }
};
constexpr Bf16Coder kOwnCoder;

}  // namespace

const QuantizerCoder& Bf16::kCoder = kOwnCoder;

const QuantizerStage Bf16::kStage = {
    .row = StageRow{"bf16", "quantizer", "", "element", "-", "rounds to bfloat16, nearest even, 16 bits", "-"},
    .kind = kFacts.kind,
};

}  // namespace gradsieve::codec::stages

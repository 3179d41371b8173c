#include "codec/stages/f16.hpp"

#include "codec/bit_stream.hpp"
#include "codec/dense_coder.hpp"
#include "codec/stages/float_values.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {
namespace {

class F16Coder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return 0; }
    double expected_bits(const Quantizer& /*quantizer*/) const noexcept override { return 16; }

    DenseRule dense_rule(const Quantizer& /*quantizer*/) const noexcept override { return DenseRule::kF16; }

    std::uint32_t code_list(const ListJob& job) const override {
        return send_rounded(
            job, [](float value) { return element::float_of(element::f16_value_bits(element::f16_bits(value))); });
    }
    std::byte* write_values(const PayloadHeader& /*header*/, const SentList& sent, const CodeScratch& /*scratch*/,
                            std::byte* out) const override {
        BitPacker packer(out);
        for (const float value : sent.decoded) packer.put(element::f16_bits(value), 16);
        return packer.end();
    }
    void code_tile(const TileJob& job) const override {
        job.kernels.round_f16(job.values.data(), static_cast<std::uint32_t>(job.values.size()),
                              reinterpret_cast<std::uint16_t*>(job.payload.tile_codes(job.tile)), job.ret_decoded);
    }

    Status read_list(const PayloadHeader& header, TileTable& /*inout_tiles*/, SectionReader sections,
                     DecodedList& ret_list) const override {
        return read_floats(header, sections, ret_list.values.data(), bits_of);
    }
    bool has_finite_values(const PayloadView& view) const noexcept override { return are_finite(view, bits_of); }
    DenseTerm term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& /*room*/) const override {
        return {DenseTerm::Kind::kF16, factor, view.values.data() + std::size_t{first} * sizeof(std::uint16_t)};
    }

private:
    static std::uint32_t bits_of(const std::byte* values, std::size_t element) noexcept {
        return element::f16_value_bits(number_at<std::uint16_t>(values, element));
    }
};
constexpr F16Coder kOwnCoder;

}  // namespace

const QuantizerCoder& F16::kCoder = kOwnCoder;

const QuantizerStage F16::kStage = {
    .row = StageRow{"f16", "quantizer", "", "element", "-",
                    "rounds to IEEE half precision, nearest even, 16 bits; beyond 65504 that is sent and the rest kept",
                    "-"},
    .kind = kFacts.kind,
};

}  // namespace gradsieve::codec::stages

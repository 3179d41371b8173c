#include "codec/stages/f32.hpp"

#include "codec/dense_coder.hpp"
#include "codec/stages/float_values.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage.hpp"

#include <algorithm>

namespace gradsieve::codec::stages {
namespace {

class F32Coder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return 0; }
    double expected_bits(const Quantizer& /*quantizer*/) const noexcept override { return 32; }

    DenseRule dense_rule(const Quantizer& /*quantizer*/) const noexcept override { return DenseRule::kMean; }
    SentGuess guess() const noexcept override { return kGuessWhole; }

    std::uint32_t code_list(const ListJob& job) const override {
        return send_rounded(job, [](float value) { return value; });
    }
    std::byte* write_values(const PayloadHeader& /*header*/, const SentList& sent, const CodeScratch& /*scratch*/,
                            std::byte* out) const override {
        std::memcpy(out, sent.decoded.data(), sent.decoded.size_bytes());
        return out + sent.decoded.size_bytes();
    }
    void code_tile(const TileJob& job) const override {
        std::memcpy(job.payload.tile_codes(job.tile), job.values.data(), job.values.size_bytes());
        if (job.ret_decoded != job.values.data()) std::ranges::copy(job.values, job.ret_decoded);
    }

    Status read_list(const PayloadHeader& header, TileTable& /*inout_tiles*/, SectionReader sections,
                     DecodedList& ret_list) const override {
        return read_floats(header, sections, ret_list.values.data(), bits_of);
    }
    bool has_finite_values(const PayloadView& view) const noexcept override { return are_finite(view, bits_of); }
    bool has_small_values(const PayloadView& view) const noexcept override { return are_small(view, bits_of); }
    DenseTerm term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& /*room*/) const override {
        return {DenseTerm::Kind::kF32, factor, view.values.data() + std::size_t{first} * sizeof(float)};
    }

private:
    static std::uint32_t bits_of(const std::byte* values, std::size_t element) noexcept {
        return number_at<std::uint32_t>(values, element);
    }
};
constexpr F32Coder kOwnCoder;

}  // namespace

const QuantizerCoder& F32::kCoder = kOwnCoder;

const QuantizerStage F32::kStage = {
    .row = StageRow{"f32", "quantizer", "", "element", "-", "sends the value itself, 32 bits", "-"},
    .kind = kFacts.kind,
};

}  // namespace gradsieve::codec::stages

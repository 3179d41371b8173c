#include "codec/stages/vote.hpp"

#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/sign_values.hpp"

namespace gradsieve::codec::stages {
namespace {

class VoteCoder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return 1; }
    DenseRule dense_rule(const Quantizer& /*quantizer*/) const noexcept override { return DenseRule::kVote; }
    Status read_value_byte(std::uint8_t byte, PayloadHeader& inout_header) const override {
        return read_plain_sign_byte(byte, inout_header);
    }
    void code_tile(const TileJob& job) const override { code_sign_tile(job, {1.0F, 1.0F}); }
    DenseTerm term(const PayloadView& view, float factor, std::uint32_t first, TermRoom& /*room*/) const override {
        return {DenseTerm::Kind::kSign, factor, view.values.data() + first / 8, factor};
    }
};
constexpr VoteCoder kOwnCoder;

}  // namespace

const QuantizerCoder& Vote::kCoder = kOwnCoder;

}  // namespace gradsieve::codec::stages

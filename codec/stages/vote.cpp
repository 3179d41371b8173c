#include "codec/stages/vote.hpp"

#include "codec/stages/quantizer_coder.hpp"

namespace gradsieve::codec::stages {
namespace {

class VoteCoder final : public QuantizerCoder {
public:
    std::uint32_t code_bits(const Quantizer& /*quantizer*/) const noexcept override { return 1; }
};
constexpr VoteCoder kOwnCoder;

}  // namespace

const QuantizerCoder& Vote::kCoder = kOwnCoder;

}  // namespace gradsieve::codec::stages

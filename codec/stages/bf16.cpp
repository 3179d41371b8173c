#include "codec/stages/bf16.hpp"

#include "codec/dense_coder.hpp"
#include "codec/stages/float_values.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {
namespace {

struct Bf16Form {
    using Number = std::uint16_t;
    static constexpr auto kTerm = DenseTerm::Kind::kBf16;
    static constexpr auto kRule = DenseRule::kBf16;

    static std::uint32_t bits_of(Number number) noexcept { return std::uint32_t{number} << 16U; }
    static Number number_of(float value) noexcept {
        return static_cast<Number>(std::bit_cast<std::uint32_t>(value) >> 16U);
    }
    static float round(float value) noexcept { return float_of_bf16(bf16_of(value)); }
    static void code_tile(const TileJob& job) noexcept {
        job.kernels.round_bf16(job.values.data(), static_cast<std::uint32_t>(job.values.size()),
                               reinterpret_cast<Number*>(job.payload.tile_codes(job.tile)), job.ret_decoded);
    }
};

class Bf16Coder final : public FloatCoder<Bf16Form> {};
constexpr Bf16Coder kOwnCoder;

}  // namespace

const QuantizerCoder& Bf16::kCoder = kOwnCoder;

const QuantizerStage Bf16::kStage = {
    .row = StageRow{"bf16", "quantizer", "", "element", "-", "rounds to bfloat16, nearest even, 16 bits", "-"},
    .kind = kFacts.kind,
};

}  // namespace gradsieve::codec::stages

#include "codec/stages/f16.hpp"

#include "codec/dense_coder.hpp"
#include "codec/stages/float_values.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {
namespace {

struct F16Form {
    using Number = std::uint16_t;
    static constexpr auto kTerm = DenseTerm::Kind::kF16;
    static constexpr auto kRule = DenseRule::kF16;

    static std::uint32_t bits_of(Number number) noexcept { return element::f16_value_bits(number); }
    static Number number_of(float value) noexcept { return static_cast<Number>(element::f16_bits(value)); }
    static float round(float value) noexcept { return element::float_of(bits_of(number_of(value))); }
    static void code_tile(const TileJob& job) noexcept {
        job.kernels.round_f16(job.values.data(), static_cast<std::uint32_t>(job.values.size()),
                              reinterpret_cast<Number*>(job.payload.tile_codes(job.tile)), job.ret_decoded);
    }
};

class F16Coder final : public FloatCoder<F16Form> {
public:
    /// No half is large.
    bool has_small_values(const PayloadView& /*view*/) const noexcept override { return true; }
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

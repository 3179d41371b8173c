#include "codec/stages/f32.hpp"

#include "codec/dense_coder.hpp"
#include "codec/stages/float_values.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/stage.hpp"

#include <algorithm>

namespace gradsieve::codec::stages {
namespace {

struct F32Form {
    using Number = std::uint32_t;
    static constexpr auto kTerm = DenseTerm::Kind::kF32;
    static constexpr auto kRule = DenseRule::kMean;

    static std::uint32_t bits_of(Number number) noexcept { return number; }
    static Number number_of(float value) noexcept { return std::bit_cast<std::uint32_t>(value); }
    static float round(float value) noexcept { return value; }
    static void code_tile(const TileJob& job) noexcept {
        std::memcpy(job.payload.tile_codes(job.tile), job.values.data(), job.values.size_bytes());
        if (job.ret_decoded != job.values.data()) std::ranges::copy(job.values, job.ret_decoded);
    }
};

class F32Coder final : public FloatCoder<F32Form> {
public:
    SentGuess guess() const noexcept override { return kGuessWhole; }
};
constexpr F32Coder kOwnCoder;

}  // namespace

const QuantizerCoder& F32::kCoder = kOwnCoder;

const QuantizerStage F32::kStage = {
    .row = StageRow{"f32", "quantizer", "", "element", "-", "sends the value itself, 32 bits", "-"},
    .kind = kFacts.kind,
};

}  // namespace gradsieve::codec::stages

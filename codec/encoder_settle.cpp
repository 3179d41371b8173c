#include "codec/encoder_settle.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace gradsieve::codec {
namespace {

/// The cells were written around the caches, so each costs a trip to memory: that many are under way at a time.
constexpr std::size_t kPrefetchCells = 24;
/// Cells that are looked at together: their answers stay in the first-level cache.
constexpr std::size_t kPieceCells = 1024;
/// Cells whose answers are one word; most such words are zero where the pass guessed.
constexpr std::size_t kWordCells = 8;

/// v after sending `decoded` of `value`, from (a - t)^2 = a^2 - 2 a t + t^2 with a taken before the subtraction.
float reduced_variance(float variance, float value, float decoded) {
    const float magnitude = std::fabs(value);
    const float quantum = std::fabs(decoded);
    const float cross = (2.0F * magnitude) * quantum;
    const float reduced = (variance - cross) + quantum * quantum;
    return reduced > 0.0F ? reduced : 0.0F;
}

/// Writes v of an element for which the pass had it wrong.
void correct_variance(const DensePlan& plan, const SentChunk& chunk, std::size_t cell) {
    float& variance = chunk.variance_out[chunk.indices[cell]];
    const float decoded = chunk.decoded[cell];
    if (decoded == 0.0F) {
        variance = plan.zeta * chunk.variances[cell];
    } else if (plan.rule == DenseRule::kVarianceHybrid) {
        variance = reduced_variance(chunk.variances[cell], chunk.values[cell], decoded);
    } else {
        variance = 0.0F;
    }
}

void prefetch_cell(const SentChunk& chunk, std::size_t cell) {
    if (cell >= chunk.indices.size()) return;
    __builtin_prefetch(chunk.residual_out + chunk.indices[cell], 1);
    if (chunk.variance_out != nullptr) __builtin_prefetch(chunk.variance_out + chunk.indices[cell], 1);
}

}  // namespace

std::size_t settle_sent(const DensePlan& plan, bool is_faithful, const SentChunk& chunk,
                        const PayloadKernels& kernels) noexcept {
    const GuessCheck check{plan.guess.add_bits, plan.guess.keep_bits, chunk.guess_floor, is_faithful};
    const bool writes_most = plan.guess.keep_bits == 0 || chunk.guess_floor == kNeverGuess;
    alignas(64) std::array<float, kPieceCells> left;
    alignas(64) std::array<std::uint8_t, kPieceCells> wrong;
    std::size_t sent = 0;
    for (std::size_t first = 0; first < chunk.indices.size(); first += kPieceCells) {
        const std::size_t count = std::min(kPieceCells, chunk.indices.size() - first);
        sent += kernels.check_guesses(check, chunk.values.data() + first, chunk.decoded.data() + first,
                                      static_cast<std::uint32_t>(count), left.data(), wrong.data());
        std::fill(wrong.begin() + static_cast<std::ptrdiff_t>(count), wrong.end(), std::uint8_t{0});
        for (std::size_t word_first = 0; word_first < count; word_first += kWordCells) {
            std::uint64_t word = 0;
            std::memcpy(&word, wrong.data() + word_first, sizeof(word));
            for (; word != 0; word &= word - 1) {
                const auto bit = static_cast<unsigned>(std::countr_zero(word));
                const std::size_t cell = word_first + bit / 8;
                if (writes_most) prefetch_cell(chunk, first + cell + kPrefetchCells);
                if (bit % 8 == 0) {
                    chunk.residual_out[chunk.indices[first + cell]] = left[cell];
                } else if (chunk.variance_out != nullptr) {
                    correct_variance(plan, chunk, first + cell);
                }
            }
        }
    }
    return sent;
}

void settle_unsent(const DensePlan& plan, const StateView& out, ElementCount element, float value,
                   float variance) noexcept {
    out.residual[element] = value;
    if (out.variance != nullptr) out.variance[element] = plan.zeta * variance;
}

}  // namespace gradsieve::codec

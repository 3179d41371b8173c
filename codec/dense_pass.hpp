// The dense pass: reads samples and one generation of state, writes the other, and lists what the selector picked.
// Memory-bound, one thread; touches only the arrays named in the plan. Samples may change while it runs: each word is
// loaded once, and nothing derived from a sample addresses memory. Plain structs: the files compiled for wider
// instructions must not instantiate library templates that the linker could then pick for every CPU.
#pragma once

#include "codec/cpu_form.hpp"
#include "codec/dither_step.hpp"
#include "codec/natural_step.hpp"
#include "codec/variance_source.hpp"

namespace gradsieve::codec {

/// What the pass does with an element once r and v are known.
enum class DenseRule : std::uint8_t {
    kMean,            ///< r = gbar, no state read, nothing listed
    kEverything,      ///< r written, nothing listed
    kBf16,            ///< all is sent as bf16: the codes and what is left of r written
    kF16,             ///< the same as f16
    kNatural,         ///< the same as natural
    kNaturalMean,     ///< the same of r = gbar: no state read or written
    kSign,            ///< r written to a buffer, its magnitudes added up; what the last tile leaves of r written
    kTwoMean,         ///< as kSign, but nothing is added up
    kVote,            ///< the signs of r = gbar: no state read or written
    kDither,          ///< as kTwoMean
    kDitherMean,      ///< the same of r = gbar: no state read or written
    kVariance,        ///< lists r^2 > ratio_floor v
    kVarianceHybrid,  ///< lists |r| > tau and r^2 > ratio_floor v
    kMagnitude,       ///< lists magnitudes at or above the span's floor
    kGatedMagnitude,  ///< lists those with r^2 > ratio_floor v at or above the floor, and writes the gate's bits
};

/// What the pass takes a listed element to decode to, before its tile or tensor is known: the float whose bits are
/// (bits(r) + add_bits) & keep_bits, and nothing (+0) with keep_bits = 0. Where the guess was right, the state is
/// settled without a second trip to memory; settle_sent corrects the rest. Speed only.
struct SentGuess {
    std::uint32_t add_bits = 0;
    std::uint32_t keep_bits = 0;
};
inline constexpr SentGuess kGuessWhole = {0, 0xFFFFFFFFU};
/// The nearer power of two, the middle going up.
inline constexpr SentGuess kGuessPow2 = {0x00400000U, 0xFF800000U};
/// A guess_floor that no finite magnitude reaches.
inline constexpr std::uint32_t kNeverGuess = 0x7F800000U;

/// Constants of one tensor's pass. r = c r_in + gbar; a listed element passes the strict test
/// fl(r * r) > min(fl(ratio_floor * v), FLT_MAX): both sides in fp32, so equal roundings compare equal, and an |r|
/// whose square overflows (above 1.8e19) always passes instead of being starved by an infinite v.
struct DensePlan {
    DenseRule rule = DenseRule::kEverything;
    VarianceRule variance;
    const float* const* samples = nullptr;  ///< sample_count arrays
    const float* weights = nullptr;         ///< sample_count weights
    std::size_t sample_count = 0;
    const float* const* second_moments = nullptr;  ///< second_moment_count arrays
    std::size_t second_moment_count = 0;
    StateView in;
    float rescale = 1;
    float rescale_squared = 1;
    float ratio_floor = 0;  ///< alpha, or the gate of topk
    float zeta = 1;
    float tau = 0;
    NaturalStep natural;              ///< kNatural, kNaturalMean
    SentGuess guess;                  ///< what is taken off r where an element is taken to be sent
    bool guesses_variance = false;    ///< write v = 0 where an element is taken to be sent
    bool streams = false;             ///< non-temporal stores; the output arrays are aligned to 64 bytes
    float* sample_scratch = nullptr;  ///< sample_count * kPooledElements floats, aligned to 64 bytes
};

/// Lanes that a list may be written past its end.
inline constexpr std::size_t kListSlack = 16;

/// kSign, kTwoMean, kDither, kDitherMean: the tile before this one. Its scale is known, so that it goes out while this
/// one comes in, which keeps the memory busy both ways. A whole tile; `residual_out` is aligned to 64 bytes if the plan
/// streams.
struct HeldTile {
    const float* values = nullptr;  ///< r; null: there is no such tile
    float scale = 0;                ///< signs: of what is not negative
    float negative_scale = 0;       ///< signs: of what is; one of the two is > 0
    float* residual_out = nullptr;  ///< what the codes leave of r; null for kDitherMean
    std::byte* codes = nullptr;     ///< sign: bit i: r < 0; dither: fields, and up to six bytes behind them
    DitherStep dither;              ///< but for signs
};

/// Elements [first, first + elements) of the tensor; `first` is a multiple of kPooledElements. Output pointers belong
/// to element `first`; the lists have room for `elements + kListSlack`.
struct DenseSpan {
    ElementCount first = 0;
    std::size_t elements = 0;
    std::uint32_t first_index = 0;      ///< index written for element `first`
    std::uint32_t magnitude_floor = 1;  ///< rules of magnitudes: least bits of |r| that are listed
    /// Rules of magnitudes: least bits of |r| that are taken to be sent; other rules take all that is listed.
    std::uint32_t guess_floor = kNeverGuess;
    float* residual_out = nullptr;
    float* variance_out = nullptr;
    std::uint32_t* indices = nullptr;
    float* values = nullptr;              ///< r of the listed elements
    float* variances = nullptr;           ///< v of the listed elements before any decay; rules with a variance
    std::uint32_t* gate_words = nullptr;  ///< kGatedMagnitude: bit i of word j is element 32 j + i
    HeldTile previous;                    ///< only together with a span of a whole tile
    /// kBf16, kF16: 16 bits for each element; kNatural, kNaturalMean: 8; kVote: 1. Aligned to 64 bytes if the plan
    /// streams.
    std::byte* codes = nullptr;
};

struct DenseOutcome {
    std::size_t listed = 0;
    bool is_finite = true;
    /// If not finite: first element of the block of 32 where a sample, a second moment or r was not; the pass ended
    /// there.
    ElementCount non_finite_block = 0;
    /// kSign: sum of |r| in fp64 over the span, a tile or its beginning: 32 lanes, each in order, lane l then takes
    /// lane l + 16, l + 8, l + 4, l + 2, l + 1.
    double magnitude_sum = 0;
};

/// Whether the rule reads and writes the residual.
[[nodiscard]] constexpr bool has_residual(DenseRule rule) noexcept {
    return rule != DenseRule::kMean && rule != DenseRule::kDitherMean && rule != DenseRule::kNaturalMean &&
           rule != DenseRule::kVote;
}

using DensePass = DenseOutcome (*)(const DensePlan&, const DenseSpan&);

/// The pass of a plan in one form; null if this build or the rule has no such form.
[[nodiscard]] DensePass find_dense_pass(CpuForm form, const DensePlan& plan) noexcept;
/// Makes non-temporal stores visible; once after the last span.
void finish_dense_pass(const DensePlan& plan) noexcept;

/// Where the trouble in a block is: lowest element, then lowest sample. Reads the block again, only to say so.
[[nodiscard]] NonFinite locate_non_finite(const DensePlan& plan, ElementCount block, ElementCount elements) noexcept;

[[nodiscard]] DensePass find_dense_pass_scalar(DenseRule rule, VarianceSource source) noexcept;
[[nodiscard]] DensePass find_dense_pass_avx2(DenseRule rule, VarianceSource source) noexcept;
[[nodiscard]] DensePass find_dense_pass_avx512(DenseRule rule, VarianceSource source) noexcept;

}  // namespace gradsieve::codec

// The loops of payload coding and decoding that touch every element, in one form per instruction set. All forms give
// the same bits: integers, and fp32 operations in a stated order without contraction. Any thread; no state.
#pragma once

#include "codec/cpu_form.hpp"
#include "codec/dither_step.hpp"
#include "codec/exponential_step.hpp"
#include "codec/integer_step.hpp"
#include "codec/low_pass_step.hpp"
#include "codec/minmax_step.hpp"
#include "codec/momentum_step.hpp"
#include "codec/natural_step.hpp"

#include <cstddef>
#include <cstdint>

namespace gradsieve::codec {

/// Index outputs need room for this many elements beyond the last (they are written in groups).
inline constexpr std::size_t kIndexSlack = 4;

/// What the dense pass took a listed value to decode to: (bits + add_bits) & keep_bits from magnitude bits `floor` on,
/// nothing below.
struct GuessCheck {
    std::uint32_t add_bits = 0;
    std::uint32_t keep_bits = 0;
    std::uint32_t floor = 0;
    bool is_faithful = false;  ///< what is sent leaves nothing behind
};

/// One node's dense values of a run of elements, the first of them at `values`.
struct DenseTerm {
    enum class Kind : std::uint8_t { kF32, kF16, kBf16, kSign, kNatural, kDither, kTable };
    Kind kind = Kind::kF32;
    float factor = 0;                   ///< kSign: factor * scale of what is not negative
    const std::byte* values = nullptr;  ///< kSign: bits; kNatural: bytes; kDither, kTable: fields of code_bits
    float scale = 0;                    ///< kDither: what a level decodes to; kSign: factor * scale of negatives
    std::uint32_t code_bits = 0;        ///< kDither, kTable: 2..8
    const float* table = nullptr;       ///< kTable: what each code decodes to
};

/// The two sides of zero: magnitudes of what is not negative, and of what is.
struct SideSums {
    double sums[2] = {};
    std::uint32_t negatives = 0;
};

struct PayloadKernels {
    /// result[i] = sum over terms, in order and from +0, of fl(factor * value i), or of factor or -scale for signs (bit
    /// set: the latter). term_count >= 1. Past the caches if `streams`: `result` is then aligned to 64 bytes, and
    /// others see it after stream_fence. Returns the sum of element_digest over the run, local indices from
    /// `first_index`. inout_is_finite: turns false if a value was not.
    std::uint64_t (*sum_dense)(const DenseTerm* terms, std::uint32_t term_count, float* result, bool streams,
                               std::uint32_t first_index, std::uint32_t count, std::uint64_t key,
                               bool* inout_is_finite);
    /// The same sum of signs, of which result[i] is vote_of with `limit`.
    std::uint64_t (*vote_dense)(const DenseTerm* terms, std::uint32_t term_count, float limit, float* result,
                                bool streams, std::uint32_t first_index, std::uint32_t count, std::uint64_t key);
    /// result[i] = result[i] + that of one term. False if a value was not finite.
    bool (*add_dense)(const DenseTerm* term, float* inout_result, std::uint32_t count);
    /// Sum of element_digest over result[0 .. count), local indices from `first_index`.
    std::uint64_t (*digest_run)(const float* result, std::uint32_t first_index, std::uint32_t count, std::uint64_t key);
    /// The same over values[indices[i]], whose local index is first_index + indices[i].
    std::uint64_t (*digest_list)(const float* values, const std::uint32_t* indices, std::uint32_t first_index,
                                 std::uint32_t count, std::uint64_t key);
    /// Copies past the caches where the alignment of `out` (64 bytes) allows; visible to others after stream_fence.
    void (*stream_copy)(float* out, const float* values, std::uint32_t count);
    void (*stream_fence)();
    /// In: remainders, `count` of them; out: ascending indices. Reads the unary quotients from `unary`, at most
    /// `available_bytes`. Returns the bits used, 0 if they ran out; `ret_last` is the last index without truncation.
    std::uint64_t (*rice_indices)(const std::byte* unary, std::size_t available_bytes, std::uint32_t count,
                                  unsigned parameter, std::uint32_t* inout_indices, std::uint64_t* ret_last);
    /// In: lower parts; out: indices. The j-th one of `highs` stands at (index >> low_bits) + j; there are as many ones
    /// as indices, fewer than 2^21. Returns how many of them ascend, the first counted: all, or where one does not.
    std::uint32_t (*elias_fano_indices)(const std::byte* highs, std::size_t bytes, unsigned low_bits,
                                        std::uint32_t* inout_indices);
    /// Number of ones among the bytes.
    std::uint32_t (*count_ones)(const std::byte* bits, std::size_t bytes);
    /// Appends first_index + position of every one; needs kIndexSlack of room. Returns how many.
    std::uint32_t (*bitmap_indices)(const std::byte* bits, std::size_t bytes, std::uint32_t first_index,
                                    std::uint32_t* ret_indices);
    /// The ones of a tile's 64 words, of which bit w of `used` says that word w has any; clears those words. Appends
    /// first_index + position; needs kIndexSlack of room. Returns how many.
    std::uint32_t (*take_tile_indices)(std::uint64_t* inout_words, std::uint64_t used, std::uint32_t first_index,
                                       std::uint32_t* ret_indices);
    /// Sum of magnitudes in fp64 as a fixed tree: 32 strided lanes in order, then a butterfly (halves added).
    double (*magnitude_sum)(const float* values, std::uint32_t count);
    /// The same tree for each side of zero, the other side's elements being +0.
    SideSums (*side_sums)(const float* values, std::uint32_t count);
    /// Bit i = values[i] < 0, padding bits zero; ret_left[i] = values[i] - (scale, or -negative_scale of negatives).
    void (*settle_signs)(const float* values, std::uint32_t count, float scale, float negative_scale,
                         std::byte* ret_bits, float* ret_left);
    /// Bit i = values[i] < 0, padding bits zero; ret_decoded[i] = scale or -negative_scale; it may be `values`.
    void (*pack_signs)(const float* values, std::uint32_t count, float scale, float negative_scale, std::byte* ret_bits,
                       float* ret_decoded);
    /// bf16_of each value, and its fp32 value back.
    void (*round_bf16)(const float* values, std::uint32_t count, std::uint16_t* ret_codes, float* ret_decoded);
    /// element::f16_bits of each value, and its fp32 value back, which may be `values`.
    void (*round_f16)(const float* values, std::uint32_t count, std::uint16_t* ret_codes, float* ret_decoded);
    /// Largest magnitude's bits; 0 for none.
    std::uint32_t (*largest_magnitude)(const float* values, std::uint32_t count);
    /// Sums of threshold_estimate.hpp of at most a tile's values: of them, and of their squares.
    double (*signed_sums)(const float* values, std::uint32_t count, double* ret_squares);
    /// The same of the magnitudes whose bits are at least `floor`, and the least of these bits; finite values.
    double (*sum_above)(const float* values, std::uint32_t count, std::uint32_t floor, std::uint32_t* inout_least);
    /// How many magnitudes have bits of at least `floor`, which is at most that of infinity.
    std::uint32_t (*count_above)(const float* values, std::uint32_t count, std::uint32_t floor);
    /// Appends first_index + position of those; needs kIndexSlack of room. Returns how many.
    std::uint32_t (*list_above)(const float* values, std::uint32_t count, std::uint32_t floor,
                                std::uint32_t first_index, std::uint32_t* ret_indices);
    /// pow2 of one tile whose exponent is `top` >= 1 (see stages/pow2.cpp): ret_decoded, which may be `values`, and the
    /// codes, sign << (bits - 1) | octaves below the top; anything where decoded is +0. Returns how many are sent.
    std::uint32_t (*quantize_pow2)(const float* values, std::uint32_t count, std::uint32_t top, unsigned bits,
                                   float* ret_decoded, std::uint8_t* ret_codes);
    /// ret_gaps[i] = indices[i] - indices[i - 1] - 1; the first is the index itself. count >= 1.
    void (*make_gaps)(const std::uint32_t* indices, std::uint32_t count, std::uint32_t* ret_gaps);
    /// Sum of gaps[i] >> parameter, mod 2^32.
    std::uint32_t (*quotient_sum)(const std::uint32_t* gaps, std::uint32_t count, unsigned parameter);
    /// Packs the low `width` bits of the fields, 8 at a time, `width` bytes each time; writes up to 16 bytes beyond.
    /// width: 1 to 16.
    void (*pack_words)(const std::uint32_t* fields, std::uint32_t groups_of_8, unsigned width, std::byte* out);
    /// The same for fields that are bytes without higher bits; writes up to 8 bytes beyond. width: 1 to 8.
    void (*pack_bytes)(const std::uint8_t* fields, std::uint32_t groups_of_8, unsigned width, std::byte* out);
    /// And back: 8 fields at a time from `width` bytes each; reads up to 16 bytes beyond. width: 1 to 16.
    void (*unpack_words)(const std::byte* packed, std::uint32_t groups_of_8, unsigned width, std::uint32_t* ret_fields);
    /// The same into bytes; reads up to 8 bytes beyond. width: 1 to 8.
    void (*unpack_bytes)(const std::byte* packed, std::uint32_t groups_of_8, unsigned width, std::uint8_t* ret_fields);
    /// Fields of one pow2 tile with exponent `top`, 1 to 254, as values; false if one lies below the normal range.
    bool (*decode_pow2)(const std::uint8_t* codes, std::uint32_t count, std::uint32_t top, unsigned bits,
                        float* ret_values);
    /// Sum of squares of at most kTileElements values in fp64, in the order that codec/stages/dither.hpp states.
    double (*square_sum)(const float* values, std::uint32_t count);
    /// dither of consecutive elements, the first one a tile's first: fields of step.bits, padding bits zero, and up to
    /// six bytes behind them; ret_decoded[i] = +-level * scale and ret_left[i] = values[i] - that, where not null; each
    /// may be `values`.
    void (*dither_dense)(const DitherStep& step, const float* values, std::uint32_t count, std::byte* ret_codes,
                         float* ret_decoded, float* ret_left);
    /// dither of a list, whose indices count from step.first_element: decoded values, which may be `values`, and codes.
    /// Returns how many are not zero.
    std::uint32_t (*dither_list)(const DitherStep& step, const float* values, const std::uint32_t* indices,
                                 std::uint32_t count, float* ret_decoded, std::uint8_t* ret_codes);
    /// exponential_dither, as dither_dense and dither_list.
    void (*exponential_dense)(const ExponentialStep& step, const float* values, std::uint32_t count,
                              std::byte* ret_codes, float* ret_decoded, float* ret_left);
    std::uint32_t (*exponential_list)(const ExponentialStep& step, const float* values, const std::uint32_t* indices,
                                      std::uint32_t count, float* ret_decoded, std::uint8_t* ret_codes);
    /// The least and the largest of at least one value, either zero where both are there.
    void (*find_range)(const float* values, std::uint32_t count, float* ret_least, float* ret_largest);
    /// Sum of whole_square of at most a tile's values.
    std::uint64_t (*whole_squares)(const float* values, std::uint32_t count, float units);
    /// minmax of a bucket's elements, as dither_dense.
    void (*minmax_dense)(const MinMaxStep& step, const float* values, std::uint32_t count, std::byte* ret_codes,
                         float* ret_decoded, float* ret_left);
    /// integer of consecutive elements, step.first_element the first, a multiple of 32: codes as words (kIntegerSign),
    /// and the rest as dither_dense. Returns all their magnitudes or-ed.
    std::uint32_t (*integer_dense)(const IntegerStep& step, const float* values, std::uint32_t count,
                                   std::uint32_t* ret_codes, float* ret_decoded, float* ret_left);
    /// integer of a list, as dither_list, the codes as words.
    std::uint32_t (*integer_list)(const IntegerStep& step, const float* values, const std::uint32_t* indices,
                                  std::uint32_t count, float* ret_decoded, std::uint32_t* ret_codes);
    /// Words as fields of `bits`, the sign the highest bit; each may be the other's memory.
    void (*narrow_integers)(const std::uint32_t* codes, std::uint32_t count, unsigned bits, std::uint32_t* ret_fields);
    /// Such fields, without higher bits, as values.
    void (*decode_integers)(const std::uint32_t* fields, std::uint32_t count, unsigned bits, float size,
                            float* ret_values);
    /// natural of consecutive elements, step.first_element the first, a multiple of 32: codes, a byte each, and what
    /// they decode to, which may be `values`.
    void (*natural_dense)(const NaturalStep& step, const float* values, std::uint32_t count, std::byte* ret_codes,
                          float* ret_decoded);
    /// natural of a list, as dither_list.
    std::uint32_t (*natural_list)(const NaturalStep& step, const float* values, const std::uint32_t* indices,
                                  std::uint32_t count, float* ret_decoded, std::uint8_t* ret_codes);
    /// Which of `count` elements from the chunk's element `first` on, a tile's first, are sent: a bit each, set where
    /// the word of random_selection.hpp's key is at most `limit`; bits behind the last are zero. Returns how many.
    std::uint32_t (*draw_kept)(const RandomRounds& random, std::uint32_t first, std::uint32_t count,
                               std::uint32_t limit, std::uint32_t* ret_words);
    /// Codes of dither as values.
    void (*decode_levels)(const std::uint8_t* codes, std::uint32_t count, unsigned bits, float scale,
                          float* ret_values);
    /// ret_left[i]: r once decoded[i] (+0: not sent) is settled. ret_wrong[i]: bit 0, the guess leaves another r; bit
    /// 1, sent and the guess of that differ. Returns how many are sent.
    std::uint32_t (*check_guesses)(const GuessCheck& check, const float* values, const float* decoded,
                                   std::uint32_t count, float* ret_left, std::uint8_t* ret_wrong);
    /// The samples' mean of elements [first, first + count), without u. Each sample is loaded once.
    void (*average_samples)(const MomentumStep* step, std::uint64_t first, std::uint32_t count, float* ret_mean);
    /// u of elements [first, first + count), see momentum.hpp. Each sample is loaded once.
    void (*accumulate_momentum)(const MomentumStep* step, std::uint64_t first, std::uint32_t count);
    /// r of elements [first, first + count), see low_pass.hpp.
    void (*low_pass)(const LowPassStep* step, std::uint64_t first, std::uint32_t count);
    /// A tile's elements rotated, and back (rotation.hpp); `signs`: a bit for each element. The output may be the
    /// input.
    void (*rotate)(const std::uint32_t* signs, const float* values, std::uint32_t count, float* ret_rotated);
    void (*rotate_back)(const std::uint32_t* signs, const float* rotated, std::uint32_t count, float* ret_values);
};

/// The form in use (chosen_cpu_form; the fastest where that is an error, which encode_tensor reports).
[[nodiscard]] const PayloadKernels& payload_kernels() noexcept;
/// One form, or null where the CPU or the build lacks it.
[[nodiscard]] const PayloadKernels* payload_kernels_of(CpuForm form) noexcept;

extern const PayloadKernels kPayloadKernelsScalar;
#if defined(__x86_64__)
extern const PayloadKernels kPayloadKernelsAvx2;
extern const PayloadKernels kPayloadKernelsAvx512;
#endif

}  // namespace gradsieve::codec

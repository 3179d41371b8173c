// Body of the payload kernels, compiled once per instruction set. Everything here has internal linkage and calls no
// inline function of any header: an out-of-line copy compiled for AVX-512 must never be what an older CPU runs.
#include "codec/payload_kernels_dither.inl"
#include "codec/payload_kernels_estimate.inl"
#include "codec/payload_kernels_exponential.inl"
#include "codec/payload_kernels_front.inl"
#include "codec/payload_kernels_integer.inl"
#include "codec/payload_kernels_list.inl"
#include "codec/payload_kernels_minmax.inl"
#include "codec/payload_kernels_natural.inl"
#include "codec/payload_kernels_random.inl"
#include "codec/payload_kernels_rotate.inl"

namespace gradsieve::codec {
namespace {

constexpr PayloadKernels kKernels = {
    .sum_dense = &sum_dense,
    .vote_dense = &vote_dense,
    .add_dense = &add_dense,
    .digest_run = &digest_run,
    .digest_list = &digest_list,
    .stream_copy = &stream_copy,
    .stream_fence = &stream_fence,
    .rice_indices = &rice_indices,
    .elias_fano_indices = &elias_fano_indices,
    .count_ones = &count_ones,
    .bitmap_indices = &bitmap_indices,
    .take_tile_indices = &take_tile_indices,
    .magnitude_sum = &magnitude_sum,
    .side_sums = &side_sums,
    .settle_signs = &settle_signs,
    .pack_signs = &pack_signs,
    .round_bf16 = &round_bf16,
    .round_f16 = &round_f16,
    .largest_magnitude = &largest_magnitude,
    .signed_sums = &signed_sums,
    .sum_above = &sum_above,
    .count_above = &count_above,
    .list_above = &list_above,
    .quantize_pow2 = &quantize_pow2,
    .make_gaps = &make_gaps,
    .quotient_sum = &quotient_sum,
    .pack_words = &pack_words,
    .pack_bytes = &pack_bytes,
    .unpack_words = &unpack_words,
    .unpack_bytes = &unpack_bytes,
    .decode_pow2 = &decode_pow2,
    .square_sum = &square_sum,
    .dither_dense = &dither_dense,
    .dither_list = &dither_list,
    .exponential_dense = &exponential_dense,
    .exponential_list = &exponential_list,
    .find_range = &find_range,
    .whole_squares = &whole_squares,
    .minmax_dense = &minmax_dense,
    .integer_dense = &integer_dense,
    .integer_list = &integer_list,
    .narrow_integers = &narrow_integers,
    .decode_integers = &decode_integers,
    .natural_dense = &natural_dense,
    .natural_list = &natural_list,
    .draw_kept = &draw_kept,
    .decode_levels = &decode_levels,
    .check_guesses = &check_guesses,
    .average_samples = &average_samples,
    .accumulate_momentum = &accumulate_momentum,
    .low_pass = &low_pass,
    .rotate = &rotate,
    .rotate_back = &rotate_back,
};

}  // namespace
}  // namespace gradsieve::codec

// The rotation in front of a quantizer, a randomized Hadamard transform: y = H (s x), where s are random signs and H is
// the Walsh-Hadamard matrix over the root of its order. It is orthonormal, and spreads every element of x over all of
// y, whose elements are then about normal with one variance, whatever x was. A quantizer with one scale for many
// elements loses least there: what signs lose of y goes to 1 - 2/pi of its energy with a mean magnitude as the scale.
//
// Each tile of a chunk is rotated by itself, in blocks whose orders are powers of four: a whole tile is one of 4096;
// the last one's m elements are cut from its beginning on into the largest powers of four that fit into what is left.
// So nothing is padded, as many codes are sent as there are elements, and the root is a power of two, by which division
// is exact. A block of one element is left as it is, but for its sign.
//
// Arithmetic, the same everywhere: z_i = fl(s_i x_i / root), then for h = 1, 2, 4, .. below the order, for each pair i,
// i + h with (i / h) even, (fl(z_i + z_(i+h)), fl(z_i - z_(i+h))). Back: z_i = fl(y_i / root), the same, x_i = s_i z_i,
// zeros without a sign. Bits of signs are words of Philox of the chunk's key, which the payload has. The key is the
// same on every node, so that receivers add up what nodes sent and rotate the sum back once; but for
// sign(scale=drive), whose errors are to differ from node to node, so that averaging makes them small.
//
// Sources: Ailon, Chazelle 2009, The Fast Johnson-Lindenstrauss Transform; Suresh, Yu, Kumar, McMahan 2017, Distributed
// Mean Estimation with Limited Communication; Vargaftik et al. 2021, DRIVE: One-bit Distributed Mean Estimation.
// Any thread; no state.
#pragma once

#include "codec/pipeline.hpp"
#include "codec/random_selection.hpp"
#include "codec/stages/sign.hpp"

#include <span>

namespace gradsieve::codec {

struct PayloadKernels;

/// What the words of a key are for: signs.
inline constexpr std::uint32_t kRotationPurpose = 6U << 24U;
/// Magnitudes that are rotated: with larger ones, sums of what is decoded might not be finite.
inline constexpr float kMostRotated = 0x1p100F;

/// The key of a chunk; see rotation_seed.
[[nodiscard]] PhiloxKey rotation_key(std::uint64_t seed, TensorId tensor, Step step, std::uint32_t chunk) noexcept;
/// The one of the two seeds of an EncodeRequest that its key follows from.
[[nodiscard]] constexpr std::uint64_t rotation_seed(const Quantizer& quantizer, std::uint64_t selection_seed,
                                                    std::uint64_t random_seed) noexcept {
    return has_drive_scale(quantizer) ? random_seed : selection_seed;
}

/// Rotates a tile of a chunk, its elements from `first` on, at most kTileElements; `ret_rotated` may be `values`.
void rotate_tile(PhiloxKey key, std::uint32_t first, std::span<const float> values, const PayloadKernels& kernels,
                 float* ret_rotated) noexcept;
/// And back.
void rotate_tile_back(PhiloxKey key, std::uint32_t first, std::span<const float> rotated, const PayloadKernels& kernels,
                      float* ret_values) noexcept;
/// And adds what comes out, element by element; `inout_rotated` is where it comes out.
void add_rotated_back(PhiloxKey key, std::uint32_t first, std::span<float> inout_rotated, const PayloadKernels& kernels,
                      float* inout_sums) noexcept;

}  // namespace gradsieve::codec

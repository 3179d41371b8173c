// What is so of a quantizer's form for every codec that has it: constants by which the payload format, the encoder, the
// decoder and the kernels are written, none of which names a quantizer. Plain values; the files compiled for wider
// instructions may include it.
#pragma once

#include "codec/quantizer_kind.hpp"

namespace gradsieve::codec {

/// How the encoder comes by the payload of a chunk of which every element is sent.
enum class DenseRoute : std::uint8_t {
    kPass,   ///< the dense pass writes codes and residual as it goes
    kHeld,   ///< a tile's scale is known once it is read: it is written while the next one is read
    kTile,   ///< a tile is read into the first-level cache and coded from there
    kChunk,  ///< as kTile, and the payload is written once all of the chunk's codes are known
    kList    ///< as a list of what is not too small
};

/// Whatever is not said is as for most of them.
struct QuantizerFacts {
    QuantizerKind kind;
    const char* name;          ///< in errors of payloads
    std::uint8_t version = 5;  ///< of the payload format: the first one that has it
    DenseRoute route = DenseRoute::kTile;
    std::uint8_t number_bits = 0;  ///< values are fp numbers of so many bits; 0: codes, of which headers say the bits
    std::uint8_t tile_scales = 0;  ///< fp32 numbers of each tile, unless a chunk has one for all
    bool is_sign_bit = false;      ///< a code is one bit, set for what is negative
    bool is_dithered = false;      ///< codes are levels of their tile's scale
    bool has_exponents = false;    ///< each tile says an exponent, and what is too small for it is not sent
    bool has_buckets = false;      ///< the header says a bucket, and each bucket says two fp32 numbers
    bool has_base = false;         ///< the header says the base of its levels
    bool has_step = false;         ///< the header says what codes, whole numbers of a chunk's own width, are times
    bool is_exact = false;         ///< loses nothing
    bool is_random = false;        ///< rounds at random and without bias, unless Quantizer::is_biased
    bool has_bound = true;         ///< its error is bounded by what it is of, so that it can be scaled by 1/z
    bool sends_lists = true;       ///< else it stands behind `all` only
    bool codes_zero = true;        ///< a list may hold zeros
    bool may_be_rotated = true;    ///< values may be those of a rotation
    bool is_vote = false;          ///< the result is the majority of all nodes' values
};

}  // namespace gradsieve::codec

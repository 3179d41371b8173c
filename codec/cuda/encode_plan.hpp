// What the encoder's kernels are told and what they leave behind: plain structs in device memory, filled on the host
// before a batch's one upload. Must hold nothing that needs a constructor; shared by .cpp and .cu files of this folder.
#pragma once

#include "base/id.hpp"
#include "codec/random_selection.hpp"

#include <cstddef>
#include <cstdint>

namespace gradsieve::codec::cuda {

inline constexpr unsigned kTileThreads = 256;  ///< threads of most blocks; as many as a chunk has tiles
inline constexpr unsigned kWarps = kTileThreads / 32;
inline constexpr std::uint32_t kTile = kTileElements;
inline constexpr std::uint32_t kChunkTiles = kChunkElements / kTileElements;
inline constexpr unsigned kPassThreads = 512;  ///< that look at a tile in a dense pass
inline constexpr unsigned kPassWarps = kPassThreads / 32;
inline constexpr unsigned kCodeThreads = 1024;  ///< that code a chunk
/// Threads of the largest block of a dense pass.
inline constexpr unsigned kScratchThreads = kPassThreads + 64;
/// Tiles that a block of a dense pass may have in shared memory.
inline constexpr unsigned kMostStages = 4;
/// Tiles of a chunk that a block works on the lists of: few, since its warps wait for memory most of the time, and each
/// tile of a warp waits for the one before. Fewer cost large tensors more blocks that have nothing to do.
inline constexpr std::uint32_t kGroupTiles = 2 * kWarps;
/// Gaps inside a tile are below 2^12: shifted by more they are 0.
inline constexpr unsigned kRiceSums = 12;
/// Counters of a tensor while its k-th magnitude is searched.
inline constexpr std::uint32_t kHistogramBins = 2048;
/// 11 bits of it, then 10, then the last 10.
inline constexpr unsigned kSelectLevels = 3;
/// Bytes of the sums of a group of tiles, or of a chunk, of a tensor whose threshold is estimated.
inline constexpr std::uint32_t kEstimateRowBytes = 48;
inline constexpr std::uint32_t kNothing = ~std::uint32_t{0};
inline constexpr std::uint64_t kAllFinite = ~std::uint64_t{0};
static_assert(kTileThreads == kChunkTiles && kChunkTiles % kGroupTiles == 0);

/// How a list's elements are coded: together; one by one at random; the same and by exponential_dither or integer. Each
/// has a kernel that sends those before it as well, since these do not want its registers.
enum class Draw : std::uint8_t { kNone = 0, kRandom = 1, kExponential = 2 };

/// What happens to a tile before it is quantized (codec/rotation.hpp); drive: and signs have DRIVE's scale.
enum class Rotation : std::uint8_t { kNone = 0, kPlain = 1, kDrive = 2 };

/// One sample's array and its share of the mean.
struct SampleView {
    const void* data;
    float weight;
    std::uint32_t type;  ///< ElementType
};

/// What one device tells the others of its part of a tensor that is decided as a whole. In page-locked host memory,
/// which every device reaches: written by one kernel of the part's device, read by the next one of each.
struct SharedCounts {
    std::uint32_t listed;
    std::uint32_t largest;  ///< magnitude bits of the candidates of the dense pass
    std::uint32_t relisted;
    std::uint32_t relisted_largest;
    std::uint32_t ties;
    std::uint32_t reserved[3];
    std::uint32_t bins[kSelectLevels][kHistogramBins];
};

/// One tensor of the batch, or one device's part of it; constant while the kernels run.
struct TensorPlan {
    SharedCounts* shared;  ///< of the tensor's first part; null: the tensor lies on this device alone
    const float* residual_in;
    const float* variance_in;
    float* residual_out;
    float* variance_out;
    double first_factor, next_factor;  ///< estimated thresholds, as the next one: EstimateRule
    double whole_elements;             ///< of the whole tensor
    std::uint32_t elements;
    std::uint32_t sample_count;
    std::uint32_t moment_count;
    std::uint32_t first_tile;       ///< the tensor's first tile in its round
    std::uint32_t tile_count;       ///< its tiles
    std::uint32_t group_count;      ///< its groups of kGroupTiles tiles
    std::uint32_t keep_count;       ///< top-k: k, of the whole tensor; block top-k, adaptive_random: of a block;
                                    ///< estimated: sent at most
    std::uint32_t part;             ///< which of the tensor's parts this is
    std::uint32_t part_count;       ///< those with elements
    std::uint32_t magnitude_limit;  ///< bits that those of |r| must exceed: below top-k's floor; tau; 0
    float rescale, rescale_squared;
    float ratio_floor, zeta;
    float moment_scale, deviation_scale, noise_share, mean_share;
    std::uint32_t first_element;    ///< of this part in the tensor; natural, dither, as all up to sign_scale
    std::uint32_t levels;           ///< S of dither, s of exponential_dither
    float sign_scale;               ///< sign(scale=tau): tau; 0: mean magnitude
    std::uint8_t selection;         ///< Selection
    std::uint8_t quantizer;         ///< QuantizerKind
    std::uint8_t index_coder;       ///< IndexCoderKind
    std::uint8_t code_bits;         ///< of a quantizer with codes: 2..8
    std::uint8_t value_bytes;       ///< of one code in a slot: 1, 2 or 4
    std::uint8_t is_deferred;       ///< listed first, sent by a kernel of its own: once the whole tensor is known, or
                                    ///< rounded at random
    std::uint8_t is_by_tensor;      ///< pow2: one exponent for the tensor
    std::uint8_t is_faithful;       ///< r = 0 on send
    std::uint8_t has_variance;      ///< v exists
    std::uint8_t is_hybrid;         ///< v is reduced on send instead of cleared
    std::uint8_t is_aligned;        ///< every array allows loads and stores of four elements
    std::uint8_t has_low_floor;     ///< top-k: floor is 1, so nothing can have been missed
    std::uint8_t has_fine_counts;   ///< top-k: the dense pass counts candidates above the floor
    std::uint8_t is_max_norm;       ///< dither, exponential_dither: else l2
    std::uint8_t is_scaled;         ///< natural, dither, exponential_dither, minmax: by 1/z
    std::uint8_t draws;             ///< Draw
    float clip;                     ///< ternary; 0: not clipped
    float base;                     ///< exponential_dither, as the next two; integer: its scale
    float depth_per_bit;            ///< of the base; integer: its step
    std::uint8_t is_biased;         ///< to the nearer level
    std::uint8_t block_log2;        ///< block top-k: of a block's elements; else 0
    std::uint16_t last_keep_count;  ///< of those: k of the last block, if it has fewer elements
    std::uint8_t is_fixed;          ///< rounding: levels are powers of the base
    std::uint8_t needs_squares;     ///< dither: a tile's unit follows from its squares, too
    std::uint8_t looks;             ///< estimated thresholds: looks at r before it is listed; else 0
    std::uint8_t is_gaussian;       ///< gaussian_k, else sidco
    std::uint32_t wanted;           ///< estimated thresholds: k, of the whole tensor
    std::uint32_t shared_rows;      ///< SharedCounts of each part behind `shared` that hold its sums
    std::uint8_t key_form;          ///< IndexForm of a selector whose positions follow from a key; else 0
    std::uint8_t draw_log2;         ///< adaptive_random: of a block's elements; else 0
    std::uint8_t bucket_log2;       ///< minmax: of a bucket's elements
    std::uint8_t rotation;          ///< Rotation
    float raise_factor;             ///< keyed, with feedback=none: what values are multiplied by; else 0, and r is kept
    RandomStream stream;            ///< adaptive_random
    StreamRounds random;            ///< natural, dither
};
static_assert(sizeof(TensorPlan) % 16 == 0);

/// What happens to a tensor's samples before the dense pass, see codec/stages/momentum.hpp; the pass's own samples
/// stand in front of them. And what happens to r behind it, see codec/low_pass.hpp.
struct FrontPlan {
    const float* momentum_in;
    float* momentum_out;  ///< null: nothing happens to samples
    float factor;
    std::uint32_t first_sample;  ///< of the chunk's rows
    std::uint32_t sample_count;
    std::uint32_t is_masked;  ///< u is cleared where an element is sent
    float keep;               ///< of r of the step before
    float take;               ///< of what was not sent; 0: nothing happens to r
    double most_norm;         ///< of the samples' mean, of the whole tensor; 0: any (codec/local_clip.hpp)
};

/// What the kernels find out about a tensor.
struct TensorState {
    std::uint64_t non_finite;  ///< least element << 16 | sample; kAllFinite
    double threshold;          ///< estimated: EstimateState, as `floor` and `measured_largest`
    std::uint32_t listed;      ///< candidates of the dense pass
    std::uint32_t relisted;    ///< candidates of the second look
    std::uint32_t is_missed;   ///< 1: a second look was needed
    std::uint32_t is_fine;     ///< 1: the dense pass's counts told all but the last 10 bits of the k-th magnitude
    std::uint32_t largest;     ///< magnitude bits of the largest candidate
    std::uint32_t prefix;      ///< top-k: leading bits of the k-th magnitude, all of them in the end
    std::uint32_t wanted;      ///< top-k: how many of those with this prefix are kept
    std::uint32_t ties;        ///< top-k: candidates equal to the k-th magnitude
    std::uint32_t groups_done[4];
    std::uint32_t ties_before;  ///< in parts before this one
    std::uint32_t floor;        ///< estimated: least magnitude bits that are listed; else 0
    std::uint32_t measured_largest;
    std::uint32_t looks_done;
    float clip;  ///< what samples' weights are multiplied by, where the norm has a bound
    std::uint32_t reserved;
};

struct ChunkPlan {
    const SampleView* samples;
    const float* const* moments;
    std::uint32_t tensor;
    std::uint32_t chunk_index;     ///< in the part that this device has of the tensor
    std::uint32_t elements;        ///< of the chunk
    std::uint32_t tiles;           ///< of the chunk
    std::uint64_t payload_offset;  ///< dense quantizers: where the payload lies; keyed without r: where means do
    SelectionRule rule;            ///< of a keyed selector; its key: of a rotation
};
struct ChunkResult {
    std::uint64_t offset;
    std::uint32_t bytes;  ///< 0: nothing is sent; integer, before that is known: all magnitudes or-ed
    std::uint32_t sent;
};

/// What a tile's list says, once it holds what is sent (before: `count` candidates).
struct TileInfo {
    std::uint32_t count;
    std::uint32_t first;  ///< index in the tile of the first element sent
    std::uint32_t last;
    std::uint32_t scale;  ///< pow2: biased exponent; integer: largest whole number; sign: bf16 bits, two means: the
                          ///< negatives' above; while deferred: magnitude bits of the largest
    alignas(8) std::uint32_t
        quotients[kRiceSums];  ///< sum over the gaps inside the tile of gap >> r; while deferred, the first:
                               ///< ties; the second, in a group's first tile: ties before the group;
                               ///< while a threshold is estimated, in a group's first tile: its sums
};

/// One launch: consecutive chunks whose tensors want the same kernel. Passed to it by value.
struct EncodeRound {
    const TensorPlan* tensors;
    TensorState* tensor_states;
    const FrontPlan* fronts;            ///< one per tensor; null if nothing happens to any
    const ChunkPlan* chunks;            ///< of this round, as the next two
    const std::uint32_t* first_tiles;   ///< ascending
    const std::uint32_t* first_groups;  ///< ascending
    ChunkResult* chunk_results;
    std::uint32_t chunk_count;
    std::uint32_t first_tile;  ///< of this pass; a round of staged samples has several
    std::uint32_t end_tile;
    std::uint32_t group_count;
    std::uint32_t stages;   ///< tiles that a block of the dense pass has in shared memory
    std::uint32_t* ticket;  ///< of this pass: next tile that nobody has taken

    std::uint16_t* slot_indices;  ///< kTile per tile, as the next two
    std::byte* slot_values;       ///< kTile * slot_value_bytes
    std::uint32_t* gate_words;    ///< kTile / 32: elements that passed the gate; null without a gate
    TileInfo* tiles;              ///< one per tile
    std::uint32_t* histograms;    ///< 2048 bins per tensor, zero between kernels; null without top-k
    double* tile_sums;            ///< one per tile: squares of the samples' mean; null without a bound of its norm
    float* sample_scratch;        ///< scratch_samples * kScratchThreads vectors per block; only for many samples
    std::uint32_t slot_value_bytes;
    std::uint32_t scratch_samples;

    std::byte* payload;     ///< device memory: every payload of the batch
    std::byte* mirror;      ///< host memory: the first mirror_bytes of it
    std::uint64_t* cursor;  ///< first free byte
    std::uint64_t mirror_bytes;
    std::uint64_t first_list_byte;  ///< of the payloads: dense ones lie before
};

}  // namespace gradsieve::codec::cuda

// A codec as text: `front | selector | quantizer | index coder | entropy coder`, parsed into one Pipeline value.
// Parsing happens at configuration time and at job start, never on the gradient's path. Any thread; plain values.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"
#include "codec/quantizer_kind.hpp"

#include <span>
#include <string>
#include <string_view>

namespace gradsieve::codec {

enum class SelectorKind : std::uint8_t {
    kAll = 0,
    kVariance = 1,
    kVarianceHybrid = 2,
    kTopK = 3,
    kThreshold = 4,
    kBlockTopK = 5,
    kGaussianK = 6,
    kSidco = 7,
    kRandK = 8,
    kBernoulli = 9,
    kBiasedRandom = 10,
    kAdaptiveRandom = 11
};
/// How elements are chosen.
enum class Selection : std::uint8_t {
    kEvery,       ///< all of them; there is no list, but where the quantizer leaves elements out
    kTested,      ///< element by element, by a test in the dense pass
    kBlockBest,   ///< the largest magnitudes of each block
    kBlockDrawn,  ///< drawn at random from each block
    kBest,        ///< the largest magnitudes of the tensor, or of several
    kEstimated,   ///< magnitudes above a threshold that is estimated from the tensor
    kKeyed        ///< by a key, which payloads have in place of positions
};
/// A codec that is selector, quantizer and index coder in one.
enum class WholeKind : std::uint8_t { kNone = 0, kLowRank = 1, kSketch = 2 };
enum class IndexCoderKind : std::uint8_t { kAuto = 0, kRice = 1, kBitmap = 2, kRaw32 = 3, kEliasFano = 4 };
/// What happens to a gradient before it is accumulated.
enum class FrontKind : std::uint8_t { kNone = 0, kMomentum = 1 };
/// What a tile's magnitudes are measured by.
enum class Norm : std::uint8_t { kMax = 0, kL2 = 1 };
/// What becomes of an unbiased quantizer's error: kept in the residual, the quantizer scaled by 1/z so that this is a
/// contraction (see dither.hpp, natural.hpp, exponential.hpp) or not, or dropped, which needs no residual.
enum class Feedback : std::uint8_t { kScaled = 0, kUnscaled = 1, kNone = 2 };
enum class Scope : std::uint8_t { kTile = 0, kTensor = 1, kModel = 2 };
/// What becomes of all nodes' decoded values of an element: their weighted mean, or the sign that has the larger
/// weight.
enum class Combine : std::uint8_t { kGather = 0, kMajority = 1 };

struct Front {
    FrontKind kind = FrontKind::kNone;
    double factor = 0.9;         ///< momentum: of u from step to step; (0, 1)
    bool is_nesterov = false;    ///< momentum: Nesterov's form
    double clip = 0;             ///< momentum: norm of a node's gradient over the square root of nodes at most; 0: any
    double beta = 1;             ///< compensate: of the residual on the way in; [0, 1]
    double gamma = 1;            ///< compensate: of what is added to it; [1e-6, 1e6]
    double low_pass = 1;         ///< compensate: of this step's error in what is kept of it; (0, 1]
    int period = 1;              ///< accumulate: steps of which the last one sends; 1..100
    int warmup_steps = 0;        ///< warmup: of the job, whose ratio is above the selector's; 0..1e9, 0: none
    double warmup_from = 0.25;   ///< warmup: ratio of the first step; above the selector's, at most 1
    bool is_difference = false;  ///< delta: what is sent is the difference to what was sent before (difference.hpp)
    bool is_rotated = false;     ///< rotate: what is quantized is each tile's rotation (rotation.hpp)
    bool operator==(const Front&) const = default;
};
struct Selector {
    SelectorKind kind = SelectorKind::kAll;
    double alpha = 1.5;        ///< variance, variance_hybrid: send when r^2 > alpha v; >= 0
    double zeta = 0.999;       ///< decay of v where nothing was sent; (0, 1]
    bool is_faithful = false;  ///< variance(mode=faithful): r = 0 on send, quantization error dropped
    double tau = 0;            ///< variance_hybrid: threshold and quantum, > 0; threshold: send when |r| > tau
    /// topk, block_topk, gaussian_k, sidco, randk, adaptive_random: fraction kept, (0, 1]; k = max(1, floor(ratio n))
    double ratio = 0;
    int block = 4096;             ///< block_topk, adaptive_random: elements of a block, a power of two in [64, 4096]
    int stages = 3;               ///< sidco: fits, each of what is above the threshold of the one before, 1..8
    double probability = 1;       ///< bernoulli: of each element; biased_random: of those of the first tile; (0, 1]
    double last_probability = 1;  ///< biased_random: of those of the last tile, (0, 1]
    Feedback feedback = Feedback::kScaled;  ///< randk, bernoulli: kScaled, or kNone: values over their probability
    double gate = 0;                        ///< topk: only among those with r^2 > gate v; 0 = no gate
    /// topk: what n is: a tensor, or kModel: all tensors of a step with this pipeline (model_scope.hpp)
    Scope scope = Scope::kTensor;
    bool operator==(const Selector&) const = default;
};
struct Quantizer {
    QuantizerKind kind = QuantizerKind::kF32;
    int bits = 4;      ///< pow2: sign + exponent bits, 2..8; minmax: of a level, 2..8
    int bucket = 512;  ///< minmax: elements with a range of their own, a power of two in [64, 4096]
    Scope scope = Scope::kTile;
    double tau = 0;  ///< sign(scale=tau): decoded as +-tau of the selector; 0 = mean magnitude
    int levels = 7;  ///< dither: S, 1..127; a code is its sign and one of 0..S; exponential_dither: those above 0
    Norm norm = Norm::kMax;
    double clip = 0;  ///< ternary, which is dither(levels=1, norm=max) of magnitudes cut off: root mean squares; 0: not
    double base = 2;  ///< exponential_dither: a level over the next, an fp32 number
    double scale = 1;       ///< integer: values are whole numbers over it; [1e-30, 1e30]
    bool is_fixed = false;  ///< rounding, which is exponential_dither whose levels are powers of the base
    /// exponential_dither, integer: to the nearer level; errors are kept, and nothing is scaled
    bool is_biased = false;
    Feedback feedback = Feedback::kScaled;  ///< of what rounds at random; kNone: sign(scale=drive)
    bool operator==(const Quantizer&) const = default;
};
/// lowrank's columns: the product of the tensor's extents behind the first, or those of a nearly square matrix.
inline constexpr std::int64_t kColumnsOfShape = 0, kColumnsSquare = -1;
inline constexpr int kMostRank = 64;
inline constexpr std::int64_t kMostColumns = std::int64_t{1} << 30U;
/// sketch's columns: as many as elements whose exact values are sent, and at least kLeastSketchColumns.
inline constexpr std::int64_t kColumnsOfKept = 0;
inline constexpr std::int64_t kLeastSketchColumns = 64, kMostSketchColumns = std::int64_t{1} << 26U;
struct Whole {
    WholeKind kind = WholeKind::kNone;
    int rank = 1;  ///< lowrank: columns of each factor, 1..kMostRank
    /// lowrank: of the matrix, 1..kMostColumns, or kColumnsOfShape or kColumnsSquare; sketch: cells of a row,
    /// kLeastSketchColumns..kMostSketchColumns, or kColumnsOfKept
    std::int64_t columns = 0;
    double ratio = 0;  ///< sketch: share of elements whose exact values are sent, (0, 0.25]
    int rows = 5;      ///< sketch: 1, 3, 5 or 7
    bool operator==(const Whole&) const = default;
};
/// similarity(skip=..): in place of a payload, a record that stands for the node's last one (reuse.hpp).
struct Reuse {
    /// Of |p|^2, p being what is to be sent, that the same again takes away at least; (0, 1), 0: none.
    double share = 0;
    int most = 7;  ///< such steps in a row, 1..100
    bool operator==(const Reuse&) const = default;
};
struct Pipeline {
    Selector selector;
    Quantizer quantizer;
    IndexCoderKind index_coder = IndexCoderKind::kAuto;
    Front front = {};
    bool measures_similarity = false;  ///< similarity: asks for signatures (similarity.hpp); changes no payload
    bool has_entropy = false;          ///< value codes are Huffman coded, see entropy_coder.hpp
    Whole whole = {};                  ///< in place of selector, quantizer and index coder, which are `all | f32` then
    Reuse reuse = {};                  ///< of similarity; asks for what reuse.hpp keeps
    bool operator==(const Pipeline&) const = default;
};

/// Whether a number that each node may tune alone is written out or replaced by `*` (records describe themselves); the
/// stage similarity, which each node may have or not, is left out then, but for one that skips.
enum class Knobs : std::uint8_t { kKeep, kBlank };

/// Parses e.g. "topk(0.01, gate=1) | pow2(bits=4) | auto". Missing stages take their defaults (quantizer f32, coder
/// auto). Parameters are positional in the order of `stage_table`, then named. Numbers outside their range, and
/// combinations that would not mean what they say, are refused: an index coder after `all` (nothing is indexed; but
/// pow2 leaves elements out), sign(scale=tau) after a selector without a tau, variance_hybrid with another quantizer
/// than its +-tau, minmax after anything but all, feedback=none after a selector with a residual of its own, another
/// feedback after one that drops errors (mode=faithful, where none is the default), sign(scale=none) after anything but
/// all, sign(scale=drive) without rotate, rotate before anything but all and a quantizer of numbers that loses
/// something, momentum before what v judges (v measures gradients, and sums of momentum vary more than sums of those),
/// compensate before that (r^2 and v would have different scales), its beta and lowpass before what keeps no residual,
/// accumulate before that, warmup before a selector without a ratio or with one that is not below `from`, delta with
/// any of these but warmup, with scope=model, with a second round of payloads or before errors that may be larger than
/// what they are of (feedback=unscaled), similarity(skip=..) before what reuse.hpp leaves out. Selectors with a tau
/// have sign(scale=tau) as their default, which is how they were published. Errors: kInvalidArgument naming the stage
/// or parameter, the value seen, what is allowed, and the nearest known name.
[[nodiscard]] Result<Pipeline> parse_pipeline(std::string_view text);
/// One spelling per meaning, every parameter written out, so that it stays the same when a default changes;
/// parse_pipeline(canonical_text(p, kKeep)) == p.
[[nodiscard]] std::string canonical_text(const Pipeline& pipeline, Knobs knobs);

/// Selects over several tensors (model_scope.hpp); one that is encoded by itself is all of them.
[[nodiscard]] constexpr bool has_model_scope(const Pipeline& pipeline) noexcept {
    return pipeline.selector.scope == Scope::kModel;
}

/// A step of a tensor has two rounds of payloads (phases.hpp): encode_tensor does not take the pipeline.
[[nodiscard]] constexpr bool has_phases(const Pipeline& pipeline) noexcept {
    return pipeline.whole.kind != WholeKind::kNone;
}

/// Keeps a factor of a matrix from step to step.
[[nodiscard]] constexpr bool has_factor(const Pipeline& pipeline) noexcept {
    return pipeline.whole.kind == WholeKind::kLowRank;
}
/// Steps may be skipped, and payloads may be reuse records (reuse.hpp).
[[nodiscard]] constexpr bool has_reuse(const Pipeline& pipeline) noexcept { return pipeline.reuse.share > 0; }

/// Needs the array r (4 B per element and generation).
[[nodiscard]] bool has_residual(const Pipeline& pipeline) noexcept;
/// Needs the array v (4 B per element and generation).
[[nodiscard]] bool has_variance(const Pipeline& pipeline) noexcept;
/// Needs the array u (4 B per element and generation).
[[nodiscard]] constexpr bool has_momentum(const Pipeline& pipeline) noexcept {
    return pipeline.front.kind == FrontKind::kMomentum;
}

/// Steps at the beginning of a job have ratios of their own (warmup.hpp).
[[nodiscard]] constexpr bool has_warmup(const Pipeline& pipeline) noexcept { return pipeline.front.warmup_steps > 0; }
/// Whether a selector keeps a share of elements that is its parameter.
[[nodiscard]] bool has_ratio(const Selector& selector) noexcept;

/// Sends differences, and keeps in place of r what was sent; what comes back is kept as well (difference.hpp).
[[nodiscard]] constexpr bool has_delta(const Pipeline& pipeline) noexcept { return pipeline.front.is_difference; }

/// Quantizes rotations (rotation.hpp).
[[nodiscard]] constexpr bool has_rotation(const Pipeline& pipeline) noexcept { return pipeline.front.is_rotated; }

/// Cuts off the norm of what enters u (local_clip.hpp).
[[nodiscard]] constexpr bool has_local_clip(const Pipeline& pipeline) noexcept {
    return has_momentum(pipeline) && pipeline.front.clip > 0;
}

/// What the residual is multiplied by on the way in: fl(beta c); what was sent, by -1.
[[nodiscard]] constexpr float residual_factor(const Front& front, float rescale) noexcept {
    return front.is_difference ? -1.0F : static_cast<float>(front.beta) * rescale;
}
/// Has factors of the stage compensate.
[[nodiscard]] constexpr bool is_compensated(const Front& front) noexcept {
    return front.beta != 1 || front.gamma != 1 || front.low_pass != 1;
}
/// Whether what is kept of an error passes a low-pass filter (low_pass.hpp).
[[nodiscard]] constexpr bool has_low_pass(const Pipeline& pipeline) noexcept { return pipeline.front.low_pass < 1; }
/// What each sample's weight, or that of u, is multiplied by: fl(gamma weight).
[[nodiscard]] constexpr float gradient_weight(const Front& front, float weight) noexcept {
    return static_cast<float>(front.gamma) * weight;
}

/// Rounds at random and without bias, so that the error may also be dropped (Feedback).
[[nodiscard]] bool is_random(const Quantizer& quantizer) noexcept;

/// How the payloads of all nodes become one result.
[[nodiscard]] Combine combine_of(QuantizerKind quantizer) noexcept;
/// "gather" or "majority".
[[nodiscard]] std::string_view combine_name(Combine combine) noexcept;
/// Sends every element.
[[nodiscard]] bool sends_all(const Selector& selector) noexcept;
/// Sends positions that follow from a key (random_selection.hpp), zeros as well: a payload has the key in their place.
[[nodiscard]] bool is_keyed(const Selector& selector) noexcept;
/// What the selector leaves out or the quantizer rounds away is dropped.
[[nodiscard]] bool drops_errors(const Selector& selector) noexcept;

/// Bits of one code, of a quantizer that has codes; 0 of others, and of integer, of which each chunk says them. The
/// entropy stage takes codes of 2 to 8 bits.
[[nodiscard]] std::uint32_t code_bits(const Quantizer& quantizer) noexcept;

/// Neither selects nor rounds: `all | f32`.
[[nodiscard]] bool loses_nothing(const Pipeline& pipeline) noexcept;
/// Bits of an element that selector and quantizer send of each element of a tensor, as far as that is known before
/// there are gradients. Without lowrank and sketch, which stand in their place.
[[nodiscard]] double expected_bits(const Pipeline& pipeline) noexcept;

/// One row per stage, for `gradsieve codecs` and for the suites that iterate the table.
struct StageRow {
    std::string_view name;
    std::string_view role;        ///< "front", "selector", "quantizer", "index coder", "entropy coder", "whole codec"
    std::string_view parameters;  ///< e.g. "alpha=1.5, zeta=0.999, mode=conserving|faithful"
    std::string_view scope;
    std::string_view state;  ///< e.g. "r, v: 8 B per element and generation"
    std::string_view meaning;
    std::string_view source;              ///< citation
    std::string_view combine = "gather";  ///< combine_name of its payloads, or of each form
    std::string_view backends = "CPU, CUDA";
};
[[nodiscard]] std::span<const StageRow> stage_table() noexcept;

}  // namespace gradsieve::codec

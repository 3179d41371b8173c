// Encoding one tensor, step by step: runs the dense pass over it, has each chunk's selection coded, and settles the
// state of what was sent. Three routes: dense selections and per-chunk selections finish chunk by chunk; tensor-wide
// selections (top-k, or a quantizer scaled over the tensor) observe all chunks first, then decide, then emit. Lives for
// one call of encode_tensor, on its thread; owns nothing but the result.
#pragma once

#include "codec/dense_pass.hpp"
#include "codec/encoder_options.hpp"
#include "codec/model_scope.hpp"
#include "codec/payload_kernels.hpp"
#include "codec/phases.hpp"
#include "codec/stages/momentum.hpp"
#include "codec/stages/stage.hpp"
#include "codec/workspace.hpp"

namespace gradsieve::codec {

class DensePayload;
class DenseTileCoder;
class EstimateLook;
struct EstimateRule;
struct EstimateState;
struct LowRankMemory;
struct SketchMemory;

/// Elements that are listed at a time: between two spans top-k may raise its floor, and the cells of one stay in the
/// first-level cache.
inline constexpr std::size_t kListSpanElements = std::size_t{1} << 14U;
static_assert(kChunkElements % kListSpanElements == 0);

class TensorEncoder {
public:
    /// The request is checked and the form supported; `scratch` is this thread's, and has the candidates of tensors
    /// that are encoded in one go.
    TensorEncoder(const EncodeRequest& request, const EncodeOptions& options, EncodeWorkspace::Impl& scratch,
                  TopKCandidates& candidates);
    [[nodiscard]] EncodeResult run();
    /// One phase of a member of a scope. Without a result's chunks but in the last.
    [[nodiscard]] EncodeResult run_phase(ScopePhase phase, const ScopeTerms& terms, ScopeMember::Impl& inout_member);

    /// The phases of lowrank, at a step that sends: M Q with r in `out`; then, with the orthonormal factor of all nodes
    /// in the memory, the transposed product with it, and r without what that stands for.
    [[nodiscard]] EncodeResult run_left(LowRankMemory& inout_memory);
    [[nodiscard]] EncodeResult run_right(LowRankMemory& inout_memory);
    /// The phases of sketch: a sketch of r in `out`; then r of the elements that all nodes chose, which is zero from
    /// there on. `sends`: anybody sent a sketch.
    [[nodiscard]] EncodeResult run_sketch(SketchMemory& inout_memory);
    [[nodiscard]] EncodeResult run_chosen(SketchMemory& inout_memory, bool sends);

private:
    void plan_dense_pass(const EncodeOptions& options);
    void plan_samples();
    void clip_samples();
    void filter_residual() const;

    // Routes.
    void encode_dense();
    bool encode_tiles(std::uint32_t chunk, DensePayload& inout_payload);
    bool encode_held(std::uint32_t chunk, DensePayload& inout_payload);
    bool encode_words(std::uint32_t chunk, PayloadBytes& ret_payload);
    void encode_dense_list(bool observes_first);
    void encode_rotated();
    bool encode_rotated(std::uint32_t chunk, const DenseTileCoder& coder, PhiloxKey key, DensePayload& inout_payload);
    void encode_selected(bool observes_first);
    void encode_keyed();
    bool gather_keyed(ElementCount first, std::span<const std::uint32_t> indices, float factor);
    bool collect_top_k();
    bool collect_candidates(std::size_t k, std::uint32_t floor);
    void observe_member(const ScopeTerms& terms, ScopeMember::Impl& inout_member);
    void count_member(ScopeMember::Impl& inout_member);
    void settle_member(const ScopeMember::Impl& member);
    bool collect_estimated();
    void restore_guessed();
    void collect_residual(bool has_gate);
    void emit_list();
    void emit_list_chunk(std::size_t position, float tensor_maximum);

    // Pieces of a route.
    void settle_held(const HeldTile& held, std::size_t elements, const DensePayload& payload) const;
    bool estimate_floor(const EstimateRule& rule, EstimateState& ret_state);
    void look_at(ElementCount first, std::size_t elements, EstimateLook& inout_look) const;
    DenseSpan span_at(ElementCount first, std::size_t elements) const;
    bool run_pass(const DenseSpan& span, DenseOutcome& ret_outcome);
    DenseSpan candidate_span(ElementCount first, std::uint32_t floor);
    bool list_cells(DenseSpan& span, std::size_t& ret_listed);
    bool list_span(DenseSpan& span);
    std::size_t list_residual(ElementCount first, std::size_t elements, std::uint32_t floor);
    std::size_t keep_of_blocks(const DenseSpan& span, std::size_t listed);
    std::size_t keep_gated(ElementCount first, std::size_t listed);
    [[nodiscard]] bool has_gate() const { return plan_.rule == DenseRule::kGatedMagnitude; }
    void restore_dropped();
    void append_dense(std::uint32_t chunk, PayloadBytes bytes, std::size_t elements);
    void append_payload(std::uint32_t chunk_index, PayloadBytes bytes, std::size_t sent);

    std::uint32_t chunk_count() const {
        return static_cast<std::uint32_t>((request_.elements + kChunkElements - 1) / kChunkElements);
    }
    std::size_t chunk_elements(std::uint32_t chunk_index) const {
        return std::min<ElementCount>(kChunkElements, request_.elements - chunk_index * kChunkElements);
    }

    const EncodeRequest& request_;
    const Pipeline& pipeline_;
    EncodeWorkspace::Impl& scratch_;
    TopKCandidates& candidates_;
    const Selection selection_;
    DensePlan plan_;
    MomentumStep momentum_;             ///< of pipelines with momentum
    MomentumSamples momentum_samples_;  ///< the pass's samples then
    DensePass pass_ = nullptr;
    const CpuForm form_;
    const PayloadKernels& kernels_;
    RandomStream random_;
    std::uint32_t block_floor_ = 1;            ///< of block_topk, see keep_block_best
    std::uint32_t guess_floor_ = kNeverGuess;  ///< what the pass took to be sent, see SentGuess
    EncodeResult result_;
};

}  // namespace gradsieve::codec

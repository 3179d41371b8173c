// topk(scope=model): exact top-k over several tensors of a step, its members, in phases, so that each member's dense
// pass runs as soon as its gradient is there. What is sent depends on the members' r alone and not on when or where
// the phases ran: the k largest magnitudes of all members, k = max(1, floor(ratio n)) of all their elements, equal ones
// by the order of members and then of elements. Any thread, one at a time for each member.
#pragma once

#include "codec/encoder.hpp"

#include <memory>
#include <span>

namespace gradsieve::codec {

/// What is done with a member next; all members take the same phases.
enum class ScopePhase : std::uint8_t {
    /// The dense pass. It lists candidates from the floor that the hint predicts, or counts magnitudes without one.
    kObserve,
    kCount,   ///< the prediction was too high: magnitudes are counted in the residual that the pass left
    kList,    ///< candidates are listed there, from a floor that the counts gave
    kCut,     ///< no phase of members: `cut_scope`
    kSettle,  ///< codes what is left of the candidates; r and v become final
};
/// What members share; equal for all of them in a phase.
struct ScopeTerms {
    std::size_t k = 1;        ///< `top_k_count` of all members' elements
    std::uint32_t hint = 0;   ///< a TopKHint's word of the last step, 0 for none; constant during a step
    std::uint32_t floor = 1;  ///< of kList: least magnitude bits to list
    // of members that list nothing (narrow_scope.hpp)
    unsigned level = 0;        ///< of kCount
    std::uint32_t prefix = 0;  ///< leading bits of the k-th magnitude that are known on that level
    std::uint64_t wanted = 0;  ///< how many of those with this prefix are to be sent
};

/// What one member's phases leave for one another. Made once and used again at every step: its lists keep their memory.
class ScopeMember {
public:
    ScopeMember();
    ScopeMember(ScopeMember&&) noexcept;
    ScopeMember& operator=(ScopeMember&&) noexcept;
    ~ScopeMember();
    struct Impl;
    [[nodiscard]] Impl& impl() noexcept { return *impl_; }
    [[nodiscard]] const Impl& impl() const noexcept { return *impl_; }
    [[nodiscard]] std::size_t candidate_count() const noexcept;

private:
    std::unique_ptr<Impl> impl_;
};

/// Whether tensors of a group with these pipelines share out one k: what is measured on the way is each one's own
/// affair.
[[nodiscard]] bool is_one_scope(const Pipeline& left, const Pipeline& right);

/// What members hold between their phases on a usual step: counts, twice k candidates, and a gate's bits.
[[nodiscard]] ByteCount scope_bytes(const Pipeline& pipeline, std::size_t members, ElementCount elements) noexcept;

/// One phase of one member. The request is as for encode_tensor and the same in all phases of a step, with a pipeline
/// of which has_model_scope holds, at a step that sends (accumulate.hpp); its selection_hint is not used. Samples are
/// read in kObserve alone, and `out` becomes final in kSettle, whose result is the tensor's; the others' have no
/// chunks. A member that met a NaN or infinity in kObserve has nothing more to do, and is left out of the phases that
/// follow. Errors: kInvalidArgument, as encode_tensor, or the phase is kCut.
[[nodiscard]] Result<EncodeResult> encode_member(ScopePhase phase, const ScopeTerms& terms,
                                                 const EncodeRequest& request, ScopeMember& inout_member,
                                                 EncodeWorkspace& workspace);

/// What follows once all members have ended a phase, and with which terms: kCount, kList or kCut after kObserve, kList
/// after kCount, kCut after kList. Cheap: looks at counts only.
struct NextPhase {
    ScopePhase phase = ScopePhase::kCut;
    ScopeTerms terms;
};
[[nodiscard]] NextPhase phase_after(ScopePhase ended, const ScopeTerms& terms,
                                    std::span<const ScopeMember* const> members);

/// Tells each member what is left of its candidates: exactly k of all, or all where there are fewer. Returns the word
/// for the next step's `hint`. O(candidates).
std::uint32_t cut_scope(const ScopeTerms& terms, std::span<ScopeMember* const> members);

}  // namespace gradsieve::codec

#include "codec/cuda/scope_plan.hpp"

#include "codec/scope_member.hpp"
#include "codec/stages/accumulate.hpp"

#include <algorithm>
#include <string>

namespace gradsieve::codec::cuda {
namespace {

/// The pass lists nothing: no finite magnitude is above it.
constexpr std::uint32_t kLargestFinite = 0x7F7FFFFFU;
static_assert(kNarrowLevels == kSelectLevels && kNarrowBins == kHistogramBins);

std::size_t parts_of(const GpuEncodeRequest& request) { return std::max<std::size_t>(1, request.parts.size()); }

/// Where the member's list is cut, from what all parts have counted.
TensorState cut_of(const ScopeMember::Impl& member, std::size_t device) {
    TensorState state{};
    state.prefix = member.cutoff.magnitude;
    state.wanted = static_cast<std::uint32_t>(member.cutoff.ties_kept);
    for (std::size_t place = 0; place < member.parts.size(); ++place) {
        const ScopePart& part = member.parts[place];
        state.ties += part.ties;
        if (place < device) state.ties_before += part.ties;
        state.largest = std::max(state.largest, part.largest);
    }
    return state;
}

}  // namespace

Status check_scope(const GpuEncodeRequest& request) {
    if (!request.scope) return {};
    const auto invalid = [&](const std::string& text) {
        return Status(
            StatusCode::kInvalidArgument,
            "phase of '" + canonical_text(*request.request.pipeline, Knobs::kKeep) + "' on a device: " + text);
    };
    const GpuScopePhase& scope = *request.scope;
    if (!has_model_scope(*request.request.pipeline) || is_waiting(*request.request.pipeline, request.request.step))
        return invalid("allowed is a codec with topk(scope=model) at a step that sends; leave the phase out");
    if (scope.member == nullptr) return invalid("no member; allowed is one that outlives the batch; pass it");
    const bool is_known =
        scope.phase == ScopePhase::kObserve || scope.phase == ScopePhase::kCount || scope.phase == ScopePhase::kSettle;
    if (!is_known || (scope.phase == ScopePhase::kCount && scope.terms.level >= kNarrowLevels))
        return invalid("a list or a cut, or level " + std::to_string(scope.terms.level) +
                       "; allowed are kObserve, kCount on levels 0 to " + std::to_string(kNarrowLevels - 1) +
                       ", and kSettle; follow narrow_scope");
    if (scope.phase == ScopePhase::kSettle && scope.member->impl().parts.size() != parts_of(request))
        return invalid(std::to_string(scope.member->impl().parts.size()) + " parts were counted, of " +
                       std::to_string(parts_of(request)) + "; allowed is to count before kSettle; follow narrow_scope");
    return {};
}

ScopePlan scope_plan_of(const GpuEncodeRequest& request, std::size_t device, TensorPlan& inout_tensor) {
    ScopePlan plan;
    plan.state.non_finite = kAllFinite;
    if (!request.scope) return plan;
    plan.phase = request.scope->phase;
    inout_tensor.magnitude_limit = kLargestFinite;
    inout_tensor.has_low_floor = 1;
    inout_tensor.keep_count = 0;  // the cut is told, and always made
    switch (request.scope->phase) {
        case ScopePhase::kObserve: inout_tensor.zeta = 1; break;  // v stays as the gate judges it
        case ScopePhase::kSettle:
            plan.state = cut_of(request.scope->member->impl(), device);
            plan.state.non_finite = kAllFinite;
            break;
        case ScopePhase::kCount:
            plan.level = request.scope->terms.level;
            plan.state.prefix = request.scope->terms.prefix;
            break;
        case ScopePhase::kList:
        case ScopePhase::kCut: break;
    }
    return plan;
}

void open_counts(const GpuEncodeRequest& request) {
    auto& parts = request.scope->member->impl().parts;
    parts.resize(parts_of(request));
    for (ScopePart& part : parts) part.counts.fill(0);
}

void take_counts(const GpuEncodeRequest& request, std::size_t device, unsigned level, const SharedCounts& counts) {
    ScopePart& part = request.scope->member->impl().parts[device];
    std::copy_n(counts.bins[level], std::size_t{1} << narrow_level(level).width, part.counts.begin());
    if (level == 0) part.largest = counts.largest;
}

}  // namespace gradsieve::codec::cuda

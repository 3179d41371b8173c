#include "codec/model_scope.hpp"

#include "codec/scope_member.hpp"
#include "codec/stages/warmup.hpp"

#include <bit>

namespace gradsieve::codec {
namespace {

/// Least magnitude bits that at least k of all members' counted elements have; 1 where there are fewer than k.
std::uint32_t counted_floor_of(std::size_t k, std::span<const ScopeMember* const> members) {
    std::uint64_t above = 0;
    for (std::size_t bin = kCountBins; bin-- > 1;) {
        for (const auto* member : members) above += member->impl().counts[bin];
        if (above >= k) return static_cast<std::uint32_t>(bin) << kCountShift;
    }
    return 1;
}

std::size_t count_equal(std::span<const float> values, std::uint32_t magnitude) {
    std::size_t equal = 0;
    for (const float value : values)
        equal += (std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU) == magnitude ? 1U : 0U;
    return equal;
}

}  // namespace

ScopeMember::ScopeMember() : impl_(std::make_unique<Impl>()) {}
ScopeMember::ScopeMember(ScopeMember&&) noexcept = default;
ScopeMember& ScopeMember::operator=(ScopeMember&&) noexcept = default;
ScopeMember::~ScopeMember() = default;

std::size_t ScopeMember::candidate_count() const noexcept { return impl_->candidates.list.count(); }

bool is_one_scope(const Pipeline& left, const Pipeline& right) {
    Pipeline other = right;
    other.measures_similarity = left.measures_similarity;
    return has_model_scope(left) && left == other;
}

ByteCount scope_bytes(const Pipeline& pipeline, std::size_t members, ElementCount elements) noexcept {
    const bool has_gate = pipeline.selector.gate > 0;
    const ByteCount cell_bytes = sizeof(std::uint32_t) + sizeof(float) * (has_gate ? 2 : 1);
    return members * sizeof(ScopeMember::Impl) + 2 * top_k_count(largest_ratio(pipeline), elements) * cell_bytes +
           (has_gate ? elements / 8 : 0);
}

NextPhase phase_after(ScopePhase ended, const ScopeTerms& terms, std::span<const ScopeMember* const> members) {
    NextPhase next{ScopePhase::kCut, terms};
    if (ended == ScopePhase::kList || members.empty()) return next;
    std::size_t listed = 0;
    bool is_counted = true;
    for (const auto* member : members) {
        listed += member->candidate_count();
        is_counted = is_counted && member->impl().is_counted;
    }
    if (is_counted) {
        next.phase = ScopePhase::kList;
        next.terms.floor = counted_floor_of(terms.k, members);
    } else if (listed < terms.k) {
        next.phase = ScopePhase::kCount;
    }
    return next;
}

std::uint32_t cut_scope(const ScopeTerms& terms, std::span<ScopeMember* const> members) {
    std::vector<std::span<const float>> lists;
    std::size_t listed = 0;
    for (const auto* member : members) {
        lists.push_back(member->impl().candidates.list.all_values());
        listed += lists.back().size();
    }
    TopKCutoff cutoff;  // everything, where there are fewer than k
    if (listed >= terms.k) cutoff = find_top_k_cutoff(lists, terms.k);
    std::size_t ties_left = cutoff.ties_kept;
    for (std::size_t position = 0; position < members.size(); ++position) {
        const std::size_t ties = ties_left == 0 ? 0 : count_equal(lists[position], cutoff.magnitude);
        members[position]->impl().cutoff = {cutoff.magnitude, std::min(ties, ties_left)};
        ties_left -= std::min(ties, ties_left);
    }
    return TopKHint(terms.hint).next(cutoff.magnitude).word();
}

}  // namespace gradsieve::codec

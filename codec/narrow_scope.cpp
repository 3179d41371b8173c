#include "codec/narrow_scope.hpp"

#include "codec/scope_member.hpp"

#include <algorithm>
#include <array>

namespace gradsieve::codec {
namespace {

std::uint64_t count_of(const ScopeMember& member, std::size_t bin) {
    std::uint64_t count = 0;
    for (const ScopePart& part : member.impl().parts) count += part.counts[bin];
    return count;
}

/// `bin`: of those equal to the cutoff on the last level; `wanted` of them are kept.
void cut_members(std::uint32_t magnitude, std::size_t bin, std::uint64_t wanted,
                 std::span<ScopeMember* const> members) {
    for (ScopeMember* member : members) {
        const std::uint64_t kept = std::min(wanted, count_of(*member, bin));
        member->impl().cutoff = {magnitude, static_cast<std::size_t>(kept)};
        for (ScopePart& part : member->impl().parts) part.ties = part.counts[bin];
        wanted -= kept;
    }
}

}  // namespace

ByteCount narrow_scope_bytes(std::size_t members) noexcept {
    return members * (sizeof(ScopeMember::Impl) + sizeof(ScopePart));
}

NextPhase narrow_scope(const ScopeTerms& terms, std::span<ScopeMember* const> members) {
    NextPhase next{ScopePhase::kSettle, terms};
    const NarrowLevel level = narrow_level(terms.level);
    const std::uint64_t wanted = terms.level == 0 ? terms.k : terms.wanted;
    const std::size_t bins = std::size_t{1} << level.width;
    std::array<std::uint64_t, kNarrowBins> totals{};  // a member's counts lie one behind the other
    for (const ScopeMember* member : members)
        for (const ScopePart& part : member->impl().parts)
            for (std::size_t bin = 0; bin < bins; ++bin) totals[bin] += part.counts[bin];
    std::uint64_t above = 0;
    for (std::size_t bin = bins; bin-- > 0;) {
        if (above + totals[bin] < wanted) {
            above += totals[bin];
            continue;
        }
        next.terms.prefix = terms.prefix << level.width | static_cast<std::uint32_t>(bin);
        next.terms.wanted = wanted - above;
        next.terms.level = terms.level + 1;
        if (next.terms.level < kNarrowLevels)
            next.phase = ScopePhase::kCount;
        else
            cut_members(next.terms.prefix, bin, next.terms.wanted, members);
        return next;
    }
    for (ScopeMember* member : members) {
        member->impl().cutoff = {};
        for (ScopePart& part : member->impl().parts) part.ties = 0;
    }
    return next;
}

}  // namespace gradsieve::codec

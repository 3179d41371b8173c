// The k-th magnitude of a scope (model_scope.hpp) found from counts alone, for members that list nothing on the way,
// since what they are on is read faster than it is written: tensors in a GPU's memory. A member's phases are kObserve,
// which counts magnitudes by their leading bits; kCount for each further level, which counts those that have the bits
// found so far by the bits behind them; and kSettle, which cuts at the k-th magnitude. What is sent is what cut_scope
// leaves. Integer counts only. Any thread, one at a time for each scope.
#pragma once

#include "codec/model_scope.hpp"

namespace gradsieve::codec {

/// Which bits of a magnitude a level counts by. Those above them are known by then.
struct NarrowLevel {
    unsigned width = 0;
    unsigned shift = 0;
};
inline constexpr unsigned kNarrowLevels = 3;
[[nodiscard]] constexpr NarrowLevel narrow_level(unsigned level) noexcept {
    if (level == 0) return {11, 20};
    return {10, level == 1 ? 10U : 0U};
}
inline constexpr std::size_t kNarrowBins = std::size_t{1} << narrow_level(0).width;

/// What such members hold, each in one part.
[[nodiscard]] ByteCount narrow_scope_bytes(std::size_t members) noexcept;

/// What follows once all members have counted on the level of `terms`: kCount on the next one, or kSettle, with each
/// member's cutoff set: exactly k of all, equal magnitudes by the order of members and of their parts; or everything
/// that is not zero, where there are fewer.
[[nodiscard]] NextPhase narrow_scope(const ScopeTerms& terms, std::span<ScopeMember* const> members);

}  // namespace gradsieve::codec

// The inside of ScopeMember. Included by what runs its phases only.
#pragma once

#include "codec/dense_pass.hpp"
#include "codec/narrow_scope.hpp"
#include "codec/select_topk.hpp"

#include <array>
#include <vector>

namespace gradsieve::codec {

/// Magnitudes by exponent and three bits of mantissa, in the order of their size.
inline constexpr unsigned kCountShift = 20;
inline constexpr std::size_t kCountBins = (std::size_t{1} << 31U) >> kCountShift;

/// What one device said of the part of a member that it has; see narrow_scope.hpp.
struct ScopePart {
    std::array<std::uint32_t, kNarrowBins> counts{};  ///< of the level that was counted last
    std::uint32_t largest = 0;                        ///< magnitude bits
    std::uint32_t ties = 0;                           ///< equal to the cutoff's magnitude
};

struct ScopeMember::Impl {
    TopKCandidates candidates;
    std::uint32_t guess_floor = kNeverGuess;  ///< what the pass took to be sent, see SentGuess
    bool is_counted = false;                  ///< `counts` say what is there; else the candidates do
    std::array<std::uint64_t, kCountBins> counts{};
    TopKCutoff cutoff;
    std::vector<ScopePart> parts{};  ///< of members that list nothing, ascending; else none
};

}  // namespace gradsieve::codec

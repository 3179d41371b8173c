// The inside of ScopeMember. Included by what runs its phases only.
#pragma once

#include "codec/dense_pass.hpp"
#include "codec/model_scope.hpp"
#include "codec/select_topk.hpp"

#include <array>

namespace gradsieve::codec {

/// Magnitudes by exponent and three bits of mantissa, in the order of their size.
inline constexpr unsigned kCountShift = 20;
inline constexpr std::size_t kCountBins = (std::size_t{1} << 31U) >> kCountShift;

struct ScopeMember::Impl {
    TopKCandidates candidates;
    std::uint32_t guess_floor = kNeverGuess;  ///< what the pass took to be sent, see SentGuess
    bool is_counted = false;                  ///< `counts` say what is there; else the candidates do
    std::array<std::uint64_t, kCountBins> counts{};
    TopKCutoff cutoff;
};

}  // namespace gradsieve::codec

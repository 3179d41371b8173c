// A form of `sign`, whose signs have no size: majority vote over signs (Bernstein, Wang, Azizzadenesheli, Anandkumar
// 2018, signSGD, arXiv:1802.04434; the vote of Bernstein, Zhao, Azizzadenesheli, Anandkumar 2018, arXiv:1810.05291):
// what the sum of all nodes' signs, each times its node's factor, comes to. Once for the CPU's forms and the GPU's. Any
// thread.
#pragma once

#include "codec/element.hpp"
#include "codec/stages/quantizer_facts.hpp"

namespace gradsieve::codec {

class QuantizerCoder;

/// Sums of so many votes that are not below this are +1, others -1. A tie is +1. Factors are shares of the ranks, so a
/// sum that is no tie is at least one rank's share away from 0; a tie's is off by what a node's factor is rounded by,
/// 2^-24 of it, which comes to 2^-24 over all, and by 2^-25 for each addition. So ties are told for sure among fewer
/// than 2^23 nodes times ranks.
GRADSIEVE_HOST_DEVICE inline float vote_limit(std::uint32_t votes) { return -0x1p-24F * static_cast<float>(votes); }
GRADSIEVE_HOST_DEVICE inline float vote_of(float sum, float limit) { return sum >= limit ? 1.0F : -1.0F; }

namespace stages {

struct Vote {
    static constexpr QuantizerFacts kFacts = {.kind = QuantizerKind::kVote,
                                              .name = "vote",
                                              .route = DenseRoute::kPass,
                                              .is_sign_bit = true,
                                              .sends_lists = false,
                                              .codes_zero = false,
                                              .may_be_rotated = false,
                                              .is_vote = true};
    static const QuantizerCoder& kCoder;
};

}  // namespace stages

}  // namespace gradsieve::codec

// Differences to what was sent (stage delta): a node keeps h, the sum of all that it sent, where others keep what they
// did not send; it encodes p = gbar - h, and h takes up what p decodes to. Every node keeps H as well, the average of
// all nodes' h: H takes up the average of what was sent, and is what comes back, every element of it. Without rounding
// H = sum of w_k h_k at every step, if both began with zeros at the same step on all nodes and all steps between were
// decoded; whoever keeps them sees to that. Source: Richtarik, Sokolov, Fatkhullin 2021, EF21: A New, Simpler,
// Theoretically Better, and Practically Faster Error Feedback, arXiv:2106.05203. Any thread; owns nothing.
#pragma once

#include "codec/decoder.hpp"
#include "codec/encoder.hpp"

#include <span>

namespace gradsieve::codec {

/// After encoding, before `out.residual` counts: makes it h_out = fl(h_in + decoded), of what the chunks decode to
/// everywhere. `own` is scratch. A sum that is no finite number is a non-finite gradient: no chunks then. Errors: those
/// of decoding.
[[nodiscard]] Result<EncodeResult> follow_sent(const EncodeRequest& request, EncodeResult sent, ResultTensor& own);

/// All nodes' payloads, in node order: result = out = fl(in + average), every element, and the digest is of that.
/// `in`, `out`: H in two generations, as many floats as the result has. Errors: as ResultTensor::decode_average; a sum
/// that is no finite number is kCorrupt. `in` is untouched, `out` and the result hold anything then.
[[nodiscard]] Result<DecodeResult> decode_differences(Step step, std::span<const Contribution> contributions,
                                                      const float* in, float* out, ResultTensor& inout_result);

/// Of a sum with H that is no finite number: kCorrupt.
[[nodiscard]] Status not_a_finite_sum();

/// A node that sends nothing in a step, since its gradient is not finite, keeps what it has: the arrays of encoding go
/// over into the other generation as they are.
void keep_state(const Pipeline& pipeline, ElementCount elements, const StateView& in, const StateView& out) noexcept;

}  // namespace gradsieve::codec

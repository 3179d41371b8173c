// What encode_or_reuse (reuse.hpp) consists of, without the arrays that it reads: for tensors whose arrays lie on a GPU
// as well. Signatures and the last payload say whether a skip is worth a look, sums of squares decide, and `sent` keeps
// what came of it.
#pragma once

#include "codec/reuse.hpp"

namespace gradsieve::codec {

/// What is known before anything is encoded.
struct ReuseLook {
    std::optional<SentState> last;
    Signature sum;                ///< of p
    Signature rest;               ///< of p - d, if there is a last payload
    std::optional<double> share;  ///< as ReuseEncode
    bool is_worth_it = false;     ///< the sums are worth their passes
};

/// `last`: of read_sent; `before`: of request.in.residual, which is known where there is a last one.
[[nodiscard]] ReuseLook look_at_reuse(const EncodeRequest& request, std::optional<SentState> last,
                                      const Signature& before, const Signature& gradient);
/// Leaves p in `out` and sends nothing.
[[nodiscard]] Pipeline reuse_pass(const Pipeline& pipeline) noexcept;
/// Whether |p - d|^2 is small enough beside |p|^2. Both are added up as residual_square_sum does.
[[nodiscard]] bool takes_away(const Pipeline& pipeline, double before, double after) noexcept;
/// The step is skipped: what is sent in place of a payload, and `sent`. `result.encoded` is reuse_pass's.
void send_again(const EncodeRequest& request, const HeldView& held, ReuseLook& look, ReuseEncode& inout_result);
/// It is not, and `result.encoded` is complete: `sent`. `after`: of request.out.residual.
void keep_sent(const EncodeRequest& request, const ReuseLook& look, Signature after, const ReuseEncode& result);

}  // namespace gradsieve::codec

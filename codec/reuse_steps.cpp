#include "codec/reuse_steps.hpp"

#include "codec/stages/accumulate.hpp"

#include <algorithm>

namespace gradsieve::codec {
namespace {

bool same_payload(std::span<const ChunkView> left, std::span<const ChunkView> right) noexcept {
    return std::ranges::equal(left, right, [](const ChunkView& a, const ChunkView& b) {
        return a.chunk_index == b.chunk_index && std::ranges::equal(a.bytes, b.bytes);
    });
}

/// What stands for the payload: records of a step, or its own bytes (step 0).
EncodeResult again(const EncodeRequest& request, std::span<const ChunkView> chunks, Step held) {
    EncodeResult result;
    PayloadPool own;
    const PayloadPool& pool = request.payloads != nullptr ? *request.payloads : own;
    for (const ChunkView& chunk : chunks) {
        PayloadBytes bytes = pool.take(held > 0 ? kReuseBytes : chunk.bytes.size());
        if (held > 0)
            build_reuse(held, bytes.data());
        else
            std::ranges::copy(chunk.bytes, bytes.data());
        result.chunks.push_back({chunk.chunk_index, std::move(bytes)});
    }
    return result;
}

}  // namespace

ReuseLook look_at_reuse(const EncodeRequest& request, std::optional<SentState> last, const Signature& before,
                        const Signature& gradient) {
    const Pipeline& pipeline = *request.pipeline;
    ReuseLook look{
        std::move(last),
        Signature::combined(before, residual_factor(pipeline.front, request.rescale), gradient, pipeline.front.gamma),
        {},
        std::nullopt,
        false};
    if (!look.last) return look;
    look.rest = Signature::combined(look.sum, 1, look.last->payload, -1);
    const double square = look.sum.square();
    if (square > 0) look.share = 1 - look.rest.square() / square;
    look.is_worth_it = look.share >= pipeline.reuse.share && look.last->in_a_row < pipeline.reuse.most;
    return look;
}

Pipeline reuse_pass(const Pipeline& pipeline) noexcept { return waiting_pipeline(pipeline); }

bool takes_away(const Pipeline& pipeline, double before, double after) noexcept {
    return before > 0 && after <= (1 - pipeline.reuse.share) * before;
}

void send_again(const EncodeRequest& request, const HeldView& held, ReuseLook& look, ReuseEncode& inout_result) {
    SentState& last = *look.last;
    inout_result.is_reuse = true;
    inout_result.has_records = held.step > 0 && same_payload(held.chunks, last.chunks);
    inout_result.encoded = again(request, last.chunks, inout_result.has_records ? held.step : 0);
    ++last.in_a_row;
    last.residual = look.rest;
    write_sent(*request.pipeline, request.elements, &last, request.out.sent);
}

void keep_sent(const EncodeRequest& request, const ReuseLook& look, Signature after, const ReuseEncode& result) {
    SentState sent{0, Signature::combined(look.sum, 1, after, -1), std::move(after), {}};
    for (const ChunkPayload& chunk : result.encoded.chunks) sent.chunks.push_back({chunk.chunk_index, chunk.bytes});
    write_sent(*request.pipeline, request.elements, sent.chunks.empty() ? nullptr : &sent, request.out.sent);
}

}  // namespace gradsieve::codec

// Whether a step is skipped, and what is kept then, of arrays in host memory.
#include "codec/encoder_check.hpp"
#include "codec/reuse_steps.hpp"
#include "codec/tile_sum_tree.hpp"

#include <algorithm>
#include <memory>

namespace gradsieve::codec {
namespace {

/// r = p - d, with p in `residual`, tile by tile.
void subtract(std::span<float> residual, const float* decoded, TileSumTree& inout_before, TileSumTree& inout_after) {
    for (std::size_t first = 0; first < residual.size(); first += kTileElements) {
        const auto tile = residual.subspan(first, std::min<std::size_t>(kTileElements, residual.size() - first));
        inout_before.add(residual_square_sum(tile));
        for (std::size_t element = 0; element < tile.size(); ++element)
            tile[element] = tile[element] - decoded[first + element];
        inout_after.add(residual_square_sum(tile));
    }
}

/// What payloads of chunks of one size decode to.
class ChunkDecoder {
public:
    ChunkDecoder(TensorId tensor, ElementCount elements)
        : values_(elements, 0.0F), result_(tensor, values_.data(), elements) {}
    /// Null: +0 for all.
    [[nodiscard]] Result<const float*> decode(Step step, const ChunkView* payload) {
        const ChunkView chunk[] = {{0, payload == nullptr ? ByteView() : payload->bytes}};
        const Contribution own[] = {{1.0F, std::span(chunk).first(payload == nullptr ? 0 : 1)}};
        GRADSIEVE_TRY(result_.decode_average(step, own).status());
        return static_cast<const float*>(values_.data());
    }

private:
    std::vector<float> values_;
    ResultTensor result_;
};

/// Leaves p in request.out.
Result<EncodeResult> add_up(const EncodeRequest& request, EncodeWorkspace& workspace) {
    const Pipeline pass = reuse_pass(*request.pipeline);
    EncodeRequest silent = request;
    silent.pipeline = &pass;
    silent.selection_hint = nullptr;
    return encode_tensor(silent, workspace);
}

/// Whether that payload takes the share away; `request.out` is complete then, but for `sent`.
Result<bool> settle_reuse(const EncodeRequest& request, std::span<const ChunkView> chunks) {
    TileSumTree before, after;
    std::optional<ChunkDecoder> decoder;
    auto next = chunks.begin();
    for (ElementCount first = 0; first < request.elements; first += kChunkElements) {
        const auto count = static_cast<std::size_t>(std::min<ElementCount>(kChunkElements, request.elements - first));
        if (!decoder || count < kChunkElements) decoder.emplace(request.tensor, count);
        const bool is_there = next != chunks.end() && next->chunk_index == first / kChunkElements;
        GRADSIEVE_ASSIGN(const float* const decoded,
                         decoder->decode(request.step, is_there ? std::to_address(next) : nullptr));
        if (is_there) ++next;
        subtract({request.out.residual + first, count}, decoded, before, after);
    }
    return takes_away(*request.pipeline, before.total(), after.total());
}

Signature signature_of_residual(const EncodeRequest& request, const float* residual) {
    const float one[] = {1.0F};
    const float* const arrays[] = {residual};
    return Signature(request.tensor, arrays, one, request.elements);
}

}  // namespace

Result<ReuseEncode> encode_or_reuse(const EncodeRequest& request, const HeldView& held, const Signature& gradient,
                                    EncodeWorkspace& workspace) {
    GRADSIEVE_TRY(check_encode_request(request));
    GRADSIEVE_CHECK(has_reuse(*request.pipeline));
    ReuseEncode result;
    if (request.elements == 0) return result;
    auto last = read_sent(*request.pipeline, request.elements, request.in.sent);
    const Signature before = last ? last->residual : signature_of_residual(request, request.in.residual);
    ReuseLook look = look_at_reuse(request, std::move(last), before, gradient);
    result.share = look.share;
    if (look.is_worth_it) {
        GRADSIEVE_ASSIGN(result.encoded, add_up(request, workspace));
        if (result.encoded.non_finite) return result;
        GRADSIEVE_ASSIGN(const bool is_reuse, settle_reuse(request, look.last->chunks));
        if (is_reuse) {
            send_again(request, held, look, result);
            return result;
        }
    }
    GRADSIEVE_ASSIGN(result.encoded, encode_tensor(request, workspace));
    if (result.encoded.non_finite) return result;
    keep_sent(request, look, signature_of_residual(request, request.out.residual), result);
    return result;
}

}  // namespace gradsieve::codec

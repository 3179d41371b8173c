// Whether a step is skipped, and what is kept then.
#include "codec/accumulate.hpp"
#include "codec/encoder_check.hpp"
#include "codec/reuse.hpp"

#include <algorithm>
#include <array>
#include <memory>

namespace gradsieve::codec {
namespace {

constexpr std::size_t kLanes = 8;

struct SquareSums {
    std::array<double, kLanes> before{}, after{};
    [[nodiscard]] static double total(const std::array<double, kLanes>& lanes) noexcept {
        double sum = 0;
        for (const double lane : lanes) sum += lane;
        return sum;
    }
};

/// r = p - d, with p in `residual`: element i of a chunk goes to lane i % 8 of the sums.
void subtract(std::span<float> residual, const float* decoded, SquareSums& inout_sums) noexcept {
    SquareSums sums = inout_sums;
    const auto take = [&](std::size_t element, std::size_t lane) {
        const double before = residual[element];
        residual[element] = residual[element] - decoded[element];
        const double after = residual[element];
        sums.before[lane] += before * before;
        sums.after[lane] += after * after;
    };
    const std::size_t whole = residual.size() / kLanes * kLanes;
    for (std::size_t first = 0; first < whole; first += kLanes)
        for (std::size_t lane = 0; lane < kLanes; ++lane) take(first + lane, lane);
    for (std::size_t element = whole; element < residual.size(); ++element) take(element, element - whole);
    inout_sums = sums;
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

/// Leaves p in request.out: what a step of accumulate does that sends nothing.
Result<EncodeResult> add_up(const EncodeRequest& request, EncodeWorkspace& workspace) {
    const Pipeline waiting = waiting_pipeline(*request.pipeline);
    EncodeRequest silent = request;
    silent.pipeline = &waiting;
    silent.selection_hint = nullptr;
    return encode_tensor(silent, workspace);
}

/// Whether that payload takes the share away; `request.out` is complete then, but for `sent`.
Result<bool> settle_reuse(const EncodeRequest& request, std::span<const ChunkView> chunks) {
    SquareSums sums;
    std::optional<ChunkDecoder> decoder;
    auto next = chunks.begin();
    for (ElementCount first = 0; first < request.elements; first += kChunkElements) {
        const auto count = static_cast<std::size_t>(std::min<ElementCount>(kChunkElements, request.elements - first));
        if (!decoder || count < kChunkElements) decoder.emplace(request.tensor, count);
        const bool is_there = next != chunks.end() && next->chunk_index == first / kChunkElements;
        GRADSIEVE_ASSIGN(const float* const decoded,
                         decoder->decode(request.step, is_there ? std::to_address(next) : nullptr));
        if (is_there) ++next;
        subtract({request.out.residual + first, count}, decoded, sums);
    }
    const double before = SquareSums::total(sums.before);
    return before > 0 && SquareSums::total(sums.after) <= (1 - request.pipeline->reuse.share) * before;
}

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
    const Pipeline& pipeline = *request.pipeline;
    auto last = read_sent(pipeline, request.elements, request.in.sent);
    const Signature before = last ? last->residual : signature_of_residual(request, request.in.residual);
    const Signature sum =
        Signature::combined(before, residual_factor(pipeline.front, request.rescale), gradient, pipeline.front.gamma);
    if (last) {
        Signature rest = Signature::combined(sum, 1, last->payload, -1);
        const double square = sum.square();
        if (square > 0) result.share = 1 - rest.square() / square;
        if (result.share >= pipeline.reuse.share && last->in_a_row < pipeline.reuse.most) {
            GRADSIEVE_ASSIGN(result.encoded, add_up(request, workspace));
            if (result.encoded.non_finite) return result;
            GRADSIEVE_ASSIGN(result.is_reuse, settle_reuse(request, last->chunks));
        }
        if (result.is_reuse) {
            result.has_records = held.step > 0 && same_payload(held.chunks, last->chunks);
            result.encoded = again(request, last->chunks, result.has_records ? held.step : 0);
            ++last->in_a_row;
            last->residual = std::move(rest);
            write_sent(pipeline, request.elements, &*last, request.out.sent);
            return result;
        }
    }
    GRADSIEVE_ASSIGN(result.encoded, encode_tensor(request, workspace));
    if (result.encoded.non_finite) return result;
    Signature after = signature_of_residual(request, request.out.residual);
    SentState sent{0, Signature::combined(sum, 1, after, -1), std::move(after), {}};
    for (const ChunkPayload& chunk : result.encoded.chunks) sent.chunks.push_back({chunk.chunk_index, chunk.bytes});
    write_sent(pipeline, request.elements, sent.chunks.empty() ? nullptr : &sent, request.out.sent);
    return result;
}

}  // namespace gradsieve::codec

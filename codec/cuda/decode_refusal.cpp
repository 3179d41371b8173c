#include "codec/cuda/decode_refusal.hpp"

#include "codec/payload_reader.hpp"

#include <algorithm>
#include <optional>
#include <string>

namespace gradsieve::codec::cuda {
namespace {

/// What the decoder finds before it adds anything of the chunk: header, lengths, what payloads make of each other,
/// lists. `inout_first`: the chunk's first header, once there is one.
Status read_source(const PlannedPayload& payload, ElementCount elements, std::optional<PayloadHeader>& inout_first) {
    Bytes memory;
    const auto view = open_payload(payload.chunk->bytes, elements, memory);
    if (!view.is_ok()) return view.status();
    if (!inout_first) inout_first = view->header;
    GRADSIEVE_TRY(check_combine(*inout_first, view->header));
    if (!view->is_list()) return {};
    DecodedList list;
    return decode_list(*view, list);
}

/// The decoder reads all nodes' payloads of a chunk before it looks at dense values, and does not say whose they are.
Status explain_chunk(ElementCount elements, std::span<const PlannedPayload> payloads,
                     std::span<const std::uint32_t> suspects) {
    const auto is_suspect = [&](std::size_t place) { return suspects.empty() || suspects[place] != 0; };
    std::optional<PayloadHeader> first;
    for (std::size_t place = 0; place < payloads.size(); ++place) {
        if (!is_suspect(place)) continue;
        const PlannedPayload& payload = payloads[place];
        if (const Status status = read_source(payload, elements, first); !status.is_ok())
            return status.with_context("contribution " + std::to_string(payload.node) + ": chunk " +
                                       std::to_string(payload.chunk->chunk_index));
    }
    for (std::size_t place = 0; place < payloads.size(); ++place)
        if (is_suspect(place)) GRADSIEVE_TRY(validate_chunk(payloads[place].chunk->bytes, elements));
    return {};
}

}  // namespace

Status check_chunk_order(std::span<const Contribution> contributions, std::size_t chunks) {
    for (std::size_t node = 0; node < contributions.size(); ++node) {
        std::uint64_t next = 0;
        for (const ChunkView& chunk : contributions[node].chunks) {
            if (chunk.chunk_index < next || chunk.chunk_index >= chunks)
                return corrupt_payload("chunk index", chunk.chunk_index,
                                       "ascending and less than " + std::to_string(chunks))
                    .with_context("contribution " + std::to_string(node));
            next = std::uint64_t{chunk.chunk_index} + 1;
        }
    }
    return {};
}

Status explain_refusal(ElementCount elements, std::span<const PlannedPayload> payloads,
                       std::span<const std::uint32_t> suspects) {
    for (std::size_t first = 0, end = 0; first < payloads.size(); first = end) {
        const std::uint32_t chunk = payloads[first].chunk->chunk_index;
        while (end < payloads.size() && payloads[end].chunk->chunk_index == chunk) ++end;
        const ElementCount chunk_elements = std::min(kChunkElements, elements - chunk * kChunkElements);
        GRADSIEVE_TRY(explain_chunk(chunk_elements, payloads.subspan(first, end - first),
                                    suspects.empty() ? suspects : suspects.subspan(first, end - first)));
    }
    return {StatusCode::kInternal,
            "GPU decoder: a payload was marked corrupt in which the CPU finds no fault: both must agree; report this, "
            "and use the CPU meanwhile"};
}

}  // namespace gradsieve::codec::cuda

#include "codec/sent_state.hpp"

#include "codec/payload.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace gradsieve::codec {
namespace {

/// Of the indices of every list coder: a word for each, or three bits (elias_fano) and what rounding adds.
constexpr ByteCount index_bound(IndexCoderKind coder, ElementCount elements) noexcept {
    constexpr ByteCount kWordBytes = 4;
    constexpr ByteCount kRoundingBytes = 16;
    return coder == IndexCoderKind::kRaw32 ? kWordBytes * elements : bytes_of_bits(3 * elements) + kRoundingBytes;
}
constexpr unsigned kMostIntegerCodeBits = 24;
/// Of pow2: a quotient of at most 253 / 2^6, its end, and six bits.
constexpr ByteCount kExponentBytesPerTile = 2;

struct Head {
    std::uint32_t chunks = 0;  ///< of the payload; 0: there is none
    std::uint32_t in_a_row = 0;
    std::array<double, kSignatureBuckets> payload{}, residual{};
};
static_assert(sizeof(Head) == 8 + 2 * kSignatureBytes);

/// A chunk's place: how many bytes its payload has, and room for the largest.
constexpr std::size_t kSizeBytes = sizeof(std::uint32_t);
ByteCount place_bytes(const Pipeline& pipeline, ElementCount elements) noexcept {
    return kSizeBytes + (most_payload_bytes(pipeline, elements) + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}
ElementCount chunk_count(ElementCount elements) noexcept { return (elements + kChunkElements - 1) / kChunkElements; }
ElementCount elements_of(ElementCount elements, ElementCount chunk) noexcept {
    return std::min<ElementCount>(kChunkElements, elements - chunk * kChunkElements);
}

}  // namespace

ByteCount most_payload_bytes(const Pipeline& pipeline, ElementCount elements) noexcept {
    const Quantizer& quantizer = pipeline.quantizer;
    const bool is_list = has_exponents(quantizer.kind);
    PayloadHeader header = header_of(quantizer, IndexForm::kEvery, elements);
    if (has_step(quantizer.kind)) header.code_bits = kMostIntegerCodeBits;
    const ByteCount plain = encoded_bytes(header, {.chunk_elements = elements, .tiles = tiles_of(elements)});
    const ByteCount list =
        is_list ? index_bound(pipeline.index_coder, elements) + kExponentBytesPerTile * tiles_of(elements) : 0;
    return plain + list + kMostHeaderBytes;
}

ElementCount sent_floats(const Pipeline& pipeline, ElementCount elements) noexcept {
    ByteCount bytes = sizeof(Head) + elements / kChunkElements * place_bytes(pipeline, kChunkElements);
    if (elements % kChunkElements > 0) bytes += place_bytes(pipeline, elements % kChunkElements);
    return bytes / sizeof(float);
}

std::optional<SentState> read_sent(const Pipeline& pipeline, ElementCount elements, const float* array) {
    Head head;
    const auto* bytes = reinterpret_cast<const std::byte*>(array);
    std::memcpy(&head, bytes, sizeof(head));
    if (head.chunks == 0 || head.chunks > chunk_count(elements) ||
        head.in_a_row > static_cast<std::uint32_t>(pipeline.reuse.most))
        return std::nullopt;
    SentState state{
        static_cast<int>(head.in_a_row), Signature::of_sums(head.payload), Signature::of_sums(head.residual), {}};
    const std::byte* place = bytes + sizeof(head);
    for (ElementCount chunk = 0; chunk < chunk_count(elements); ++chunk) {
        std::uint32_t size = 0;
        std::memcpy(&size, place, sizeof(size));
        const ElementCount count = elements_of(elements, chunk);
        if (size > most_payload_bytes(pipeline, count)) return std::nullopt;
        if (size > 0) state.chunks.push_back({static_cast<std::uint32_t>(chunk), {place + kSizeBytes, size}});
        place += place_bytes(pipeline, count);
    }
    if (state.chunks.size() != head.chunks) return std::nullopt;
    return state;
}

void write_sent(const Pipeline& pipeline, ElementCount elements, const SentState* state, float* ret_array) noexcept {
    Head head;
    auto* bytes = reinterpret_cast<std::byte*>(ret_array);
    if (state == nullptr) {
        std::memcpy(bytes, &head, sizeof(head));
        return;
    }
    head.chunks = static_cast<std::uint32_t>(state->chunks.size());
    head.in_a_row = static_cast<std::uint32_t>(state->in_a_row);
    std::ranges::copy(state->payload.sums(), head.payload.begin());
    std::ranges::copy(state->residual.sums(), head.residual.begin());
    std::memcpy(bytes, &head, sizeof(head));
    std::byte* place = bytes + sizeof(head);
    auto next = state->chunks.begin();
    for (ElementCount chunk = 0; chunk < chunk_count(elements); ++chunk) {
        const bool is_there = next != state->chunks.end() && next->chunk_index == chunk;
        const auto size = is_there ? static_cast<std::uint32_t>(next->bytes.size()) : 0U;
        GRADSIEVE_CHECK(size <= most_payload_bytes(pipeline, elements_of(elements, chunk)));
        std::memcpy(place, &size, sizeof(size));
        if (is_there) std::memcpy(place + kSizeBytes, next++->bytes.data(), size);
        place += place_bytes(pipeline, elements_of(elements, chunk));
    }
}

}  // namespace gradsieve::codec

// The inside of ResultTensor. Included by what decodes into it and by what else writes it only.
#pragma once

#include "codec/decoder.hpp"
#include "codec/dense_term.hpp"
#include "codec/payload_kernels.hpp"
#include "codec/payload_reader.hpp"

#include <algorithm>
#include <vector>

namespace gradsieve::codec {

/// Larger tensors are no longer in the caches when a client reads them, so whole blocks go past the caches.
inline constexpr ElementCount kStreamElements = kChunkElements;
/// What the last step touched in one chunk.
struct Touched {
    bool is_whole = false;
    std::vector<std::uint32_t> indices;  ///< ascending; with kIndexSlack of room behind `count`
    std::uint32_t count = 0;
};

/// One node's payload of the chunk in hand.
struct Source {
    float factor = 0;
    PayloadView view;
    const DecodedList* list = nullptr;  ///< null: dense
    std::uint32_t position = 0;         ///< list: first element not yet added
    TermRoom* room = nullptr;           ///< for what the codes of a tile decode to
};

struct ResultTensor::Impl {
    TensorId tensor = 0;
    float* memory = nullptr;
    ElementCount elements = 0;
    std::vector<Touched> chunks;

    // Reused from call to call.
    std::vector<std::size_t> cursors;  ///< per contribution: its next chunk
    std::vector<DecodedList> lists;    ///< per contribution
    std::vector<Bytes> expanded;       ///< per contribution: payloads whose values were coded
    std::vector<Source> sources;       ///< of the chunk in hand
    std::vector<TermRoom> rooms;       ///< per contribution
    std::vector<DenseTerm> terms;      ///< of the tile in hand
    Touched next_touched;

    [[nodiscard]] ElementCount chunk_elements(std::size_t chunk) const noexcept {
        return std::min<ElementCount>(kChunkElements, elements - chunk * kChunkElements);
    }
    [[nodiscard]] bool is_streamed() const noexcept { return elements >= kStreamElements; }
    [[nodiscard]] float* chunk_memory(std::size_t chunk) const noexcept { return memory + chunk * kChunkElements; }
    void set(TensorId id, float* result, ElementCount count) {
        tensor = id;
        memory = result;
        elements = count;
        chunks.resize((count + kChunkElements - 1) / kChunkElements);
    }
    void forget() noexcept {
        for (Touched& touched : chunks) touched.is_whole = true;
    }

    Status check_chunks(std::span<const Contribution> contributions) const;
    Status collect_sources(std::size_t chunk, std::span<const Contribution> contributions);
    Status decode_chunk(std::size_t chunk, Step step, DecodeResult& inout_result);
    void decode_lists(std::size_t chunk, std::uint64_t key, DecodeResult& inout_result);
    Status decode_dense(std::size_t chunk, std::uint64_t key, DecodeResult& inout_result);
    Status decode_mixed(std::size_t chunk, std::uint64_t key, bool is_dense, DecodeResult& inout_result);
    Status decode_streamed_lists(std::size_t chunk, std::uint64_t key, DecodeResult& inout_result);
    Status finish_whole(std::size_t chunk, bool is_finite);
    void clear_chunk(std::size_t chunk) noexcept;
};

}  // namespace gradsieve::codec

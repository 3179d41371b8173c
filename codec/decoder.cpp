#include "codec/decoder.hpp"

#include "codec/decode_tile.hpp"
#include "codec/decoder_impl.hpp"
#include "codec/digest.hpp"
#include "codec/rotation.hpp"
#include "codec/stages/vote.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace gradsieve::codec {
namespace {

/// Longest list, as elements per listed one, that is added in place. In memory that streams, a list of 0.8 % already
/// costs as much as writing everything (clear and add touch other cache lines; measured); in cached memory, more.
constexpr ElementCount kStreamedListDivisor = 128;
constexpr ElementCount kCachedListDivisor = 16;
constexpr std::size_t kLineBytes = 64;

bool is_line_aligned(const float* memory) noexcept {
    return reinterpret_cast<std::uintptr_t>(memory) % kLineBytes == 0;
}

/// Rotations by more than one key.
bool has_several_rotations(const std::vector<Source>& sources) noexcept {
    const PhiloxKey first = sources.front().view.header.rotation_key;
    return std::ranges::any_of(sources, [&](const Source& source) {
        const PhiloxKey key = source.view.header.rotation_key;
        return key.low != first.low || key.high != first.high;
    });
}

/// Adds the list's elements inside the tile and sets a bit for each; meanwhile `outgoing` goes out.
void add_list(Source& inout_source, const Tile& tile, TileBits& inout_touched, OutgoingTile* outgoing = nullptr) {
    constexpr std::uint32_t kElementsPerPart = 8;
    const std::uint32_t* indices = inout_source.list->indices.data();
    const float* values = inout_source.list->values.data();
    const float factor = inout_source.factor;
    const std::uint32_t begin = inout_source.position;
    std::uint32_t element = begin;
    for (; indices[element] < tile.first + tile.count; ++element) {  // the end mark is larger than any index
        const std::uint32_t local = indices[element] - tile.first;
        tile.result[local] = tile.result[local] + factor * values[element];
        inout_touched.words[local / 64] |= std::uint64_t{1} << (local % 64);
        inout_touched.used |= std::uint64_t{1} << (local / 64);
        if (outgoing != nullptr && (element - begin) % kElementsPerPart == 0) outgoing->write_part();
    }
    inout_source.position = element;
}

}  // namespace

Status ResultTensor::Impl::check_chunks(std::span<const Contribution> contributions) const {
    for (std::size_t node = 0; node < contributions.size(); ++node) {
        std::uint64_t next = 0;
        for (const ChunkView& chunk : contributions[node].chunks) {
            if (chunk.chunk_index < next || chunk.chunk_index >= chunks.size())
                return corrupt_payload("chunk index", chunk.chunk_index,
                                       "ascending and less than " + std::to_string(chunks.size()))
                    .with_context("contribution " + std::to_string(node));
            next = std::uint64_t{chunk.chunk_index} + 1;
        }
    }
    return {};
}

Status ResultTensor::Impl::collect_sources(std::size_t chunk, std::span<const Contribution> contributions) {
    sources.clear();
    for (std::size_t node = 0; node < contributions.size(); ++node) {
        const auto& node_chunks = contributions[node].chunks;
        if (cursors[node] == node_chunks.size() || node_chunks[cursors[node]].chunk_index != chunk) continue;
        const ByteView payload = node_chunks[cursors[node]++].bytes;
        auto view = open_payload(payload, chunk_elements(chunk), expanded[node]);
        Status status = view.status();
        if (status.is_ok() && !sources.empty()) status = check_combine(sources.front().view.header, view->header);
        if (status.is_ok() && view->is_list()) status = decode_list(*view, lists[node]);
        if (!status.is_ok())
            return status.with_context("contribution " + std::to_string(node) + ": chunk " + std::to_string(chunk));
        sources.push_back(
            {contributions[node].factor, *view, view->is_list() ? &lists[node] : nullptr, 0, &rooms[node]});
    }
    return {};
}

void ResultTensor::Impl::clear_chunk(std::size_t chunk) noexcept {
    Touched& touched = chunks[chunk];
    float* result = chunk_memory(chunk);
    if (touched.is_whole)
        std::fill_n(result, chunk_elements(chunk), 0.0F);
    else
        for (std::uint32_t i = 0; i < touched.count; ++i) result[touched.indices[i]] = 0.0F;
    touched.is_whole = false;
    touched.count = 0;
}

// Every node sends every element: one loop adds, digests and writes.
Status ResultTensor::Impl::decode_dense(std::size_t chunk, std::uint64_t key, DecodeResult& inout_result) {
    const auto chunk_count = static_cast<std::uint32_t>(chunk_elements(chunk));
    float* result = chunk_memory(chunk);
    const bool streams = is_streamed() && is_line_aligned(result);
    const bool is_vote = combine_of(sources.front().view.header.quantizer) == Combine::kMajority;
    bool is_finite = true;
    auto step = static_cast<std::uint32_t>(kTileElements);
    for (const Source& source : sources) step = std::min(step, term_elements(source.view.header));
    for (std::uint32_t first = 0; first < chunk_count; first += step) {
        const std::uint32_t count = std::min(step, chunk_count - first);
        terms.clear();
        for (const Source& source : sources)
            terms.push_back(dense_term(source.view, source.factor, first, *source.room));
        const auto term_count = static_cast<std::uint32_t>(terms.size());
        inout_result.digest += is_vote ? payload_kernels().vote_dense(terms.data(), term_count, vote_limit(term_count),
                                                                      result + first, streams, first, count, key)
                                       : payload_kernels().sum_dense(terms.data(), term_count, result + first, streams,
                                                                     first, count, key, &is_finite);
    }
    inout_result.touched_elements += chunk_count;
    return finish_whole(chunk, is_finite);
}

// Some nodes send every element, or all of a rotation, or lists are so long that all of cached memory is written.
Status ResultTensor::Impl::decode_mixed(std::size_t chunk, std::uint64_t key, bool is_dense,
                                        DecodeResult& inout_result) {
    const PayloadKernels& kernels = payload_kernels();
    const auto chunk_count = static_cast<std::uint32_t>(chunk_elements(chunk));
    std::array<std::uint32_t, kTileElements + kIndexSlack> indices;
    TileBits bits;
    const bool is_by_itself = has_several_rotations(sources);
    alignas(kLineBytes) std::array<float, kTileElements> rotated;
    bool is_finite = true;
    for (std::uint32_t first = 0; first < chunk_count; first += kTileElements) {
        const Tile tile{chunk_memory(chunk) + first, first,
                        std::min(static_cast<std::uint32_t>(kTileElements), chunk_count - first)};
        std::fill_n(tile.result, tile.count, 0.0F);
        for (Source& source : sources) {
            if (source.list != nullptr) {
                add_list(source, tile, bits);
                continue;
            }
            float* sums = is_by_itself ? rotated.data() : tile.result;
            if (is_by_itself) std::fill_n(sums, tile.count, 0.0F);
            const std::uint32_t step = term_elements(source.view.header);
            for (std::uint32_t part = 0; part < tile.count; part += step) {
                const DenseTerm term = dense_term(source.view, source.factor, first + part, *source.room);
                is_finite &= kernels.add_dense(&term, sums + part, std::min(step, tile.count - part));
            }
            if (is_by_itself)
                add_rotated_back(source.view.header.rotation_key, first, {sums, tile.count}, kernels, tile.result);
        }
        if (const PayloadHeader& header = sources.front().view.header; header.is_rotated && !is_by_itself)
            rotate_tile_back(header.rotation_key, first, {tile.result, tile.count}, kernels, tile.result);
        const std::uint32_t touched = bits.take(0, indices.data());
        inout_result.digest += is_dense ? kernels.digest_run(tile.result, first, tile.count, key)
                                        : kernels.digest_list(tile.result, indices.data(), first, touched, key);
        inout_result.touched_elements += is_dense ? tile.count : touched;
    }
    return finish_whole(chunk, is_finite);
}

// Long lists in memory that streams: each tile is put together in the first-level cache, in a block of zeros that gets
// its zeros back, and goes out while the next one is put together.
Status ResultTensor::Impl::decode_streamed_lists(std::size_t chunk, std::uint64_t key, DecodeResult& inout_result) {
    const PayloadKernels& kernels = payload_kernels();
    const auto chunk_count = static_cast<std::uint32_t>(chunk_elements(chunk));
    alignas(kLineBytes) std::array<std::array<float, kTileElements>, 2> blocks{};
    std::array<std::array<std::uint32_t, kTileElements + kIndexSlack>, 2> indices;
    std::array<std::uint32_t, 2> touched{};
    TileBits bits;
    OutgoingTile outgoing;
    for (std::uint32_t first = 0, number = 0; first < chunk_count; first += kTileElements, number = 1 - number) {
        const Tile tile{blocks[number].data(), first,
                        std::min(static_cast<std::uint32_t>(kTileElements), chunk_count - first)};
        for (Source& source : sources) add_list(source, tile, bits, &outgoing);
        touched[number] = bits.take(0, indices[number].data());
        inout_result.digest += kernels.digest_list(tile.result, indices[number].data(), first, touched[number], key);
        inout_result.touched_elements += touched[number];
        outgoing.write_rest();
        for (std::uint32_t i = 0; i < touched[1 - number]; ++i) blocks[1 - number][indices[1 - number][i]] = 0.0F;
        outgoing = {tile.result, chunk_memory(chunk) + first, tile.count};
    }
    outgoing.write_rest();
    return finish_whole(chunk, true);
}

Status ResultTensor::Impl::finish_whole(std::size_t chunk, bool is_finite) {
    chunks[chunk].is_whole = true;
    payload_kernels().stream_fence();
    if (!is_finite) return corrupt_payload("value", "not finite", "any finite number");
    return {};
}

// Few elements: clears what the last step touched and adds, tile by tile, so that both hit the same cache lines.
void ResultTensor::Impl::decode_lists(std::size_t chunk, std::uint64_t key, DecodeResult& inout_result) {
    Touched& last = chunks[chunk];
    std::size_t room = kIndexSlack;
    for (const Source& source : sources) room += source.list->count;
    if (next_touched.indices.size() < room) next_touched.indices.resize(room);
    next_touched.count = 0;
    next_touched.is_whole = false;
    const auto chunk_count = static_cast<std::uint32_t>(chunk_elements(chunk));
    float* result = chunk_memory(chunk);
    std::uint32_t cleared = 0;
    TileBits bits;
    for (std::uint32_t first = 0; first < chunk_count; first += kTileElements) {
        const Tile tile{result + first, first,
                        std::min(static_cast<std::uint32_t>(kTileElements), chunk_count - first)};
        for (; cleared < last.count && last.indices[cleared] < first + tile.count; ++cleared)
            result[last.indices[cleared]] = 0.0F;
        for (Source& source : sources) add_list(source, tile, bits);
        std::uint32_t* touched = next_touched.indices.data() + next_touched.count;
        const std::uint32_t count = bits.take(first, touched);
        inout_result.digest += payload_kernels().digest_list(result, touched, 0, count, key);
        next_touched.count += count;
    }
    inout_result.touched_elements += next_touched.count;
    std::swap(last, next_touched);
}

Status ResultTensor::Impl::decode_chunk(std::size_t chunk, Step step, DecodeResult& inout_result) {
    if (sources.empty()) {
        clear_chunk(chunk);
        return {};
    }
    const std::uint64_t key = digest_key(tensor, step, static_cast<std::uint32_t>(chunk));
    ElementCount listed = 0;
    std::size_t list_count = 0;
    for (const Source& source : sources) {
        if (source.list == nullptr) continue;
        listed += source.list->count;
        ++list_count;
    }
    if (list_count == 0 && !sources.front().view.header.is_rotated) return decode_dense(chunk, key, inout_result);
    const bool is_dense = list_count < sources.size();
    const ElementCount limit = chunk_elements(chunk) / (is_streamed() ? kStreamedListDivisor : kCachedListDivisor);
    if (is_dense || listed > limit) {
        if (is_dense || !is_streamed()) return decode_mixed(chunk, key, is_dense, inout_result);
        return decode_streamed_lists(chunk, key, inout_result);
    }
    if (chunks[chunk].is_whole) clear_chunk(chunk);
    decode_lists(chunk, key, inout_result);
    return {};
}

ResultTensor::ResultTensor(TensorId tensor, float* memory, ElementCount elements) : impl_(std::make_unique<Impl>()) {
    impl_->set(tensor, memory, elements);
}
void ResultTensor::move_to(TensorId tensor, float* memory, ElementCount elements) {
    impl_->set(tensor, memory, elements);
    impl_->forget();
}
ResultTensor::ResultTensor(ResultTensor&&) noexcept = default;
ResultTensor& ResultTensor::operator=(ResultTensor&&) noexcept = default;
ResultTensor::~ResultTensor() = default;

Result<DecodeResult> ResultTensor::decode_average(Step step, std::span<const Contribution> contributions) {
    Impl& impl = *impl_;
    GRADSIEVE_TRY(impl.check_chunks(contributions));
    impl.cursors.assign(contributions.size(), 0);
    if (impl.lists.size() < contributions.size()) {
        impl.lists.resize(contributions.size());
        impl.rooms.resize(contributions.size());
        impl.expanded.resize(contributions.size());
    }
    DecodeResult result;
    for (std::size_t chunk = 0; chunk < impl.chunks.size(); ++chunk) {
        Status status = impl.collect_sources(chunk, contributions);
        if (status.is_ok()) status = impl.decode_chunk(chunk, step, result);
        if (status.is_ok()) continue;
        impl.forget();
        return status;
    }
    return result;
}

}  // namespace gradsieve::codec

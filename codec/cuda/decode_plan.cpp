#include "codec/cuda/decode_plan.hpp"

#include "codec/bit_stream.hpp"
#include "codec/cuda/decode_request_check.hpp"
#include "codec/cuda/vector_bytes.hpp"
#include "codec/digest.hpp"
#include "codec/index_coder.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

namespace gradsieve::codec::cuda {
namespace {

/// List elements of one round of kernels: 8 bytes of workspace for each. Only lists that hold most of a very large
/// tensor need a second round.
constexpr std::uint64_t kRoundEntries = std::uint64_t{1} << 27U;
/// Tables of one round of kernels: 20 bytes for each 4,096 elements of each node.
constexpr std::uint64_t kRoundTableWords = std::uint64_t{1} << 26U;
/// Marks what the device fetches while it is being placed.
constexpr ByteCount kFetched = ByteCount{1} << 63U;
/// Longest section of tile exponents: 254 zeros, a one and 6 bits for each tile.
constexpr std::uint64_t kLongestExponents = bytes_of_bits(kMaximumTiles * (254 + 1 + 6));

/// What the device of that place averages.
DeviceRange range_of(const GpuDecodeRequest& request, const DevicePlace& place) {
    if (!request.ranges.empty()) return request.ranges[place.place];
    return {0, place.place == 0 ? request.elements : 0};
}

/// Whether the sections of known length lie inside the body with clear padding, and it is not longer than any list of
/// this header can be. What this refuses, decode_list refuses with a reason.
bool is_plausible(const PayloadView& view) {
    const PayloadHeader& header = view.header;
    const std::uint64_t values = bytes_of_bits(std::uint64_t{header.count} * header.value_bits());
    std::uint64_t indices = 0;
    std::uint64_t variable = has_exponents(header.quantizer) ? kLongestExponents : 0;
    if (header.has_tile_scales()) variable = kMaximumTiles * header.tile_scale_bytes();
    std::uint64_t used_bits = 0;
    switch (header.index_form) {
        case IndexForm::kEvery: break;
        case IndexForm::kRice:
            used_bits = std::uint64_t{header.count} * header.index_parameter;
            variable += bytes_of_bits(header.count + ((view.elements - header.count) >> header.index_parameter));
            break;
        case IndexForm::kBitmap: used_bits = view.elements; break;
        case IndexForm::kRaw32: used_bits = std::uint64_t{header.count} * 32; break;
        case IndexForm::kEliasFano:
            used_bits = std::uint64_t{header.count} * header.index_parameter;
            indices = bytes_of_bits(
                elias_fano_high_bits(static_cast<std::uint32_t>(view.elements), header.count, header.index_parameter));
            break;
        case IndexForm::kSubset:
        case IndexForm::kBernoulli: used_bits = std::uint64_t{key_bytes(header.index_form)} * 8; break;
    }
    indices += bytes_of_bits(used_bits);
    if (view.body.size() < indices || view.body.size() > indices + variable + values) return false;
    return has_zero_padding(view.body, used_bits);
}

/// One kernel averages both.
bool is_alike(const DecodeRound& round, const DeviceChunk& chunk) noexcept {
    return round.has_dense == chunk.has_dense && round.has_exponential == chunk.has_exponential &&
           round.is_rotated == chunk.is_rotated && round.has_base == chunk.has_base;
}

void point_base(const GpuDecodeBase& base, ElementCount first, DeviceTensor& inout_tensor) {
    const auto bytes = first * sizeof(float);
    inout_tensor.base_in = reinterpret_cast<const float*>(reinterpret_cast<std::uintptr_t>(base.in) - bytes);
    inout_tensor.base_out = reinterpret_cast<float*>(reinterpret_cast<std::uintptr_t>(base.out) - bytes);
}

template <typename Row>
void write_rows(std::span<const Row> rows, std::byte* ret_rows) {
    if (!rows.empty()) std::memcpy(ret_rows, rows.data(), rows.size_bytes());
}

}  // namespace

Status DecodePlan::make(std::span<const GpuDecodeRequest> requests, const DevicePlace& device,
                        const GpuDecoderLimits& limits) {
    clear();
    requests_ = requests;
    mirrors_ = limits.mirrors.get();
    for (std::size_t place = 0; place < requests.size(); ++place) {
        GRADSIEVE_TRY(check_decode_request(requests[place], place, device.count));
        TensorDecodePlan plan;
        plan.first_payload = static_cast<std::uint32_t>(payloads_.size());
        plan.first_word = static_cast<std::uint32_t>(last_touched_.size());
        const std::uint64_t units = units_ + (requests[place].elements + kUnitElements - 1) / kUnitElements;
        if (units > std::numeric_limits<std::uint32_t>::max())
            return {StatusCode::kInvalidArgument, "GPU decoder: elements of a batch " +
                                                      std::to_string(units * kUnitElements) +
                                                      ": allowed are fewer than 2^42; decode fewer tensors at once"};
        plan.words = static_cast<std::uint32_t>((tiles_of(requests[place].elements) + 31) / 32);
        plans_.push_back(plan);
        plans_.back().refusal = plan_tensor(requests[place], device);
        plans_.back().payloads = static_cast<std::uint32_t>(payloads_.size()) - plan.first_payload;
    }
    order_chunks();
    GRADSIEVE_TRY(cut_rounds(limits));
    lay_out();
    return {};
}

void DecodePlan::clear() {
    plans_.clear();
    sources_.clear();
    payloads_.clear();
    lists_.clear();
    chunks_.clear();
    tensors_.clear();
    results_.clear();
    last_touched_.clear();
    pieces_.clear();
    fetched_pieces_.clear();
    rounds_.clear();
    piece_bytes_ = 0;
    fetched_bytes_ = 0;
    mask_bytes_ = 0;
    units_ = 0;
    expanded_count_ = 0;
}

Status DecodePlan::plan_tensor(const GpuDecodeRequest& request, const DevicePlace& place) {
    const TensorDecodePlan& plan = plans_.back();
    DeviceTensor tensor;
    tensor.first_word = plan.first_word;
    tensor.knows_last = request.touched != nullptr && request.touched->words.size() == plan.words;
    if (!request.bases.empty()) {
        const std::size_t device = request.ranges.empty() ? 0 : place.place;
        const ElementCount first = range_of(request, place).first;
        if (device < request.bases.size()) point_base(request.bases[device], first, tensor);
    }
    tensors_.push_back(tensor);
    results_.add_tensor(request, place);
    last_touched_.resize(last_touched_.size() + plan.words);
    if (tensor.knows_last)
        std::copy_n(request.touched->words.begin(), plan.words, last_touched_.begin() + plan.first_word);

    const std::size_t chunks = chunks_.size();
    const std::size_t pieces = pieces_.size();
    const std::size_t fetched_pieces = fetched_pieces_.size();
    const ByteCount piece_bytes = piece_bytes_;
    const ByteCount fetched_bytes = fetched_bytes_;
    const std::uint32_t units = units_;
    const std::uint64_t count = (request.elements + kChunkElements - 1) / kChunkElements;
    Status status = check_chunk_order(request.contributions, count);
    if (status.is_ok()) status = plan_chunks(request, range_of(request, place));
    if (status.is_ok()) return status;
    chunks_.resize(chunks);  // a refused tensor has no work
    pieces_.resize(pieces);
    fetched_pieces_.resize(fetched_pieces);
    payloads_.resize(plan.first_payload);
    sources_.resize(plan.first_payload);
    piece_bytes_ = piece_bytes;
    fetched_bytes_ = fetched_bytes;
    units_ = units;
    return status;
}

Status DecodePlan::plan_chunks(const GpuDecodeRequest& request, const DeviceRange& range) {
    cursors_.clear();
    for (const Contribution& contribution : request.contributions) {
        const auto first =
            std::ranges::lower_bound(contribution.chunks, range.first_chunk(), {}, &ChunkView::chunk_index);
        cursors_.push_back(static_cast<std::size_t>(std::distance(contribution.chunks.begin(), first)));
    }
    for (ElementCount first = range.first; first < range.end(); first += kChunkElements) {
        DeviceChunk chunk;
        const auto chunk_index = static_cast<std::uint32_t>(first / kChunkElements);
        const ElementCount elements = std::min(kChunkElements, request.elements - first);
        chunk.first_element = first;
        chunk.digest_key = digest_key(request.tensor, request.step, chunk_index);
        chunk.units = units_of(elements);
        chunk.elements = static_cast<std::uint32_t>(elements);
        chunk.tensor = static_cast<std::uint32_t>(tensors_.size() - 1);
        chunk.first_payload = static_cast<std::uint32_t>(payloads_.size());
        chunk.has_base = !request.bases.empty();
        chunk.has_dense = chunk.has_base;
        bool is_plausible_chunk = true;
        for (std::uint32_t node = 0; node < request.contributions.size(); ++node) {
            const auto& node_chunks = request.contributions[node].chunks;
            std::size_t& cursor = cursors_[node];
            if (cursor == node_chunks.size() || node_chunks[cursor].chunk_index != chunk_index) continue;
            is_plausible_chunk &= add_payload({node, &node_chunks[cursor++]}, request, elements, chunk);
        }
        if (!is_plausible_chunk)
            return explain_refusal(request.elements, std::span(sources_).subspan(plans_.back().first_payload), {});
        units_ += chunk.units;
        chunks_.push_back(chunk);
    }
    return {};
}

// False if the payload is corrupt; it is among the sources then too, so that the reason can be found.
bool DecodePlan::add_payload(const PlannedPayload& source, const GpuDecodeRequest& request, ElementCount elements,
                             DeviceChunk& inout_chunk) {
    sources_.push_back(source);
    payloads_.emplace_back();
    ++inout_chunk.payloads;
    if (expanded_.size() == expanded_count_) expanded_.emplace_back();
    auto view = open_payload(source.chunk->bytes, elements, expanded_[expanded_count_]);
    if (view.is_ok()) expanded_count_ += view->is_expanded ? 1 : 0;
    if (!view.is_ok() || (view->is_list() && !is_plausible(*view))) return false;
    const PayloadHeader& header = view->header;
    const bool is_vote = combine_of(header.quantizer) == Combine::kMajority;
    if (inout_chunk.payloads > 1 && (is_vote != (inout_chunk.votes > 0) || header.is_rotated != inout_chunk.is_rotated))
        return false;
    if (header.is_rotated) add_rotation(header.rotation_key, inout_chunk);
    inout_chunk.votes += is_vote ? 1 : 0;
    DevicePayload& payload = payloads_.back();
    payload.count = header.count;
    payload.chunk_elements = static_cast<std::uint32_t>(elements);
    payload.tensor = inout_chunk.tensor;
    payload.factor = request.contributions[source.node].factor;
    payload.chunk_scale = header.chunk_scale;
    payload.base = has_step(header.quantizer) ? header.step : header.base;
    payload.bucket_log2 = static_cast<std::uint8_t>(header.bucket_log2);
    payload.quantizer = header.quantizer;
    payload.index_form = header.index_form;
    payload.value_bits = static_cast<std::uint8_t>(header.value_bits());
    payload.code_bits = static_cast<std::uint8_t>(header.code_bits);
    payload.index_parameter = static_cast<std::uint8_t>(header.index_parameter);
    payload.exponent_parameter = static_cast<std::uint8_t>(header.exponent_parameter);
    payload.base_exponent = header.base_exponent;
    payload.is_list = view->is_list();
    payload.has_chunk_scale = header.has_chunk_scale;
    payload.is_paper_word = header.is_paper_word();
    if (payload.is_list)
        add_list(*view, payload);
    else
        add_dense(*view, payload);
    inout_chunk.has_dense |= !payload.is_list;
    inout_chunk.has_lists |= payload.is_list;
    inout_chunk.has_direct |= payload.is_direct;
    inout_chunk.has_keyed |= is_keyed(header.index_form);
    inout_chunk.has_exponential |= !header.is_rotated && (has_base(header.quantizer) || has_step(header.quantizer) ||
                                                          has_bucket_byte(header.quantizer));
    return true;
}

/// Of the payload that is last.
void DecodePlan::add_rotation(PhiloxKey key, DeviceChunk& inout_chunk) {
    payloads_.back().rule.key = key;
    const PhiloxKey first = payloads_[inout_chunk.first_payload].rule.key;
    inout_chunk.is_rotated = true;
    inout_chunk.has_several_rotations |= key.low != first.low || key.high != first.high;
}

void DecodePlan::add_list(const PayloadView& view, DevicePayload& inout_payload) {
    const IndexForm form = view.header.index_form;
    if (is_keyed(form)) {
        inout_payload.rule = read_key(form, view.header.count, view.body.data());
        inout_payload.bits_offset = mask_bytes_;
        mask_bytes_ = aligned(mask_bytes_ + tiles_of(view.elements) * kTileElements / 8 + kReadBehind);
    }
    inout_payload.is_direct = is_keyed(form) || form == IndexForm::kEvery || form == IndexForm::kBitmap ||
                              (form == IndexForm::kRice && view.header.index_parameter == 0);
    inout_payload.body_bytes = static_cast<std::uint32_t>(view.body.size());
    inout_payload.body_offset = place(view.body);
}

void DecodePlan::add_dense(const PayloadView& view, DevicePayload& inout_payload) {
    inout_payload.scale_offset = view.scales.empty() ? 0 : place(view.scales);
    inout_payload.body_offset = place(view.values);
}

ByteCount DecodePlan::place(ByteView bytes) {
    const bool is_fetched = mirrors_ != nullptr && mirrors_->holds(bytes.data(), bytes.size());
    ByteCount& end = is_fetched ? fetched_bytes_ : piece_bytes_;
    const ByteCount offset = end;
    (is_fetched ? fetched_pieces_ : pieces_).push_back({bytes.data(), bytes.size(), offset});
    end = aligned(offset + bytes.size());
    return is_fetched ? offset | kFetched : offset;
}

ByteCount DecodePlan::offset_of(ByteCount placed) const noexcept {
    return (placed & kFetched) == 0 ? layout_.tables_bytes + placed : layout_.sent_bytes + (placed & ~kFetched);
}

// Each kernel gets consecutive chunks: those of lists alone, which a leaner kernel averages, first.
void DecodePlan::order_chunks() {
    std::ranges::stable_partition(chunks_, [](const DeviceChunk& chunk) { return !chunk.has_dense; });
    std::ranges::stable_partition(chunks_, [](const DeviceChunk& chunk) { return !chunk.has_exponential; });
    std::ranges::stable_partition(chunks_, [](const DeviceChunk& chunk) { return !chunk.is_rotated; });
    std::ranges::stable_partition(chunks_, [](const DeviceChunk& chunk) { return !chunk.has_base; });
    std::uint32_t unit = 0;
    for (DeviceChunk& chunk : chunks_) {
        chunk.first_unit = unit;
        unit += chunk.units;
    }
}

// Consecutive chunks of one kind whose lists fit into the workspace, at least one.
Status DecodePlan::cut_rounds(const GpuDecoderLimits& limits) {
    round_entries_ = 0;
    round_table_words_ = 0;
    std::uint64_t entries = 0;
    std::uint64_t words = 0;
    ByteCount staged = 0;
    for (std::uint32_t place = 0; place < chunks_.size(); ++place) {
        DeviceChunk& chunk = chunks_[place];
        const auto payloads = std::span(payloads_).subspan(chunk.first_payload, chunk.payloads);
        const std::uint64_t chunk_words = std::uint64_t{chunk.payloads} * table_words(chunk.elements);
        std::uint64_t listed = 0;
        for (const DevicePayload& payload : payloads)
            listed += payload.is_list && !payload.is_direct ? payload.count : 0;
        if (std::max(listed, chunk_words) > std::numeric_limits<std::uint32_t>::max())
            return {StatusCode::kResourceExhausted,
                    "GPU decoder: list elements of one chunk " + std::to_string(listed) +
                        ": allowed are fewer than 2^32; use the CPU, or a sparser pipeline"};
        const ByteCount result_bytes = results_.chunk_bytes(chunk.tensor, chunk.elements);
        const bool is_staging_full = result_bytes > 0 && staged > 0 && staged + result_bytes > limits.staging_bytes;
        if (rounds_.empty() || !is_alike(rounds_.back(), chunk) || entries + listed > kRoundEntries ||
            words + chunk_words > kRoundTableWords || is_staging_full) {
            rounds_.push_back({static_cast<std::uint32_t>(lists_.size()), 0, place, 0, chunk.first_unit, 0,
                               chunk.has_dense, chunk.has_exponential, false, chunk.is_rotated,
                               static_cast<std::uint32_t>(results_.copies().size()), 0, chunk.has_base});
            entries = 0;
            words = 0;
            staged = 0;
        }
        results_.stage_chunk(chunk, staged);
        add_lists(chunk, entries, words);
        DecodeRound& round = rounds_.back();
        round.copies = static_cast<std::uint32_t>(results_.copies().size()) - round.first_copy;
        round.has_keyed |= chunk.has_keyed;
        ++round.chunks;
        round.units += chunk.units;
        round_entries_ = std::max(round_entries_, entries);
        round_table_words_ = std::max(round_table_words_, words);
    }
    return {};
}

/// Places the chunk's lists in the round's workspace.
void DecodePlan::add_lists(const DeviceChunk& chunk, std::uint64_t& inout_entries, std::uint64_t& inout_words) {
    for (std::uint32_t of_chunk = 0; of_chunk < chunk.payloads; ++of_chunk) {
        DevicePayload& payload = payloads_[chunk.first_payload + of_chunk];
        if (!payload.is_list) continue;
        lists_.push_back(chunk.first_payload + of_chunk);
        ++rounds_.back().lists;
        payload.entry_offset = static_cast<std::uint32_t>(inout_entries);
        payload.table_offset = static_cast<std::uint32_t>(inout_words);
        inout_entries += payload.is_direct ? 0 : payload.count;
        inout_words += table_words(chunk.elements);
    }
}

void DecodePlan::lay_out() {
    ByteCount end = 0;
    const auto take = [&](std::size_t rows, std::size_t row_bytes) {
        const ByteCount offset = end;
        end = aligned(end + rows * row_bytes);
        return offset;
    };
    layout_.reports = take(plans_.size(), sizeof(TensorReport));
    layout_.touched = take(last_touched_.size(), sizeof(std::uint32_t));
    layout_.payload_faults = take(payloads_.size(), sizeof(std::uint32_t));
    layout_.answers_bytes = end;
    layout_.payloads = take(payloads_.size(), sizeof(DevicePayload));
    layout_.lists = take(lists_.size(), sizeof(std::uint32_t));
    layout_.chunks = take(chunks_.size(), sizeof(DeviceChunk));
    layout_.tensors = take(tensors_.size(), sizeof(DeviceTensor));
    layout_.results = take(results_.rows(), sizeof(DeviceResult));
    layout_.last_touched = take(last_touched_.size(), sizeof(std::uint32_t));
    layout_.tables_bytes = end;
    layout_.sent_bytes = end + piece_bytes_ + kReadBehind;
    layout_.total_bytes = layout_.sent_bytes + fetched_bytes_ + kReadBehind;
    for (UploadPiece& piece : pieces_) piece.offset += layout_.tables_bytes;
    for (UploadPiece& piece : fetched_pieces_) piece.offset += layout_.sent_bytes;
    for (DevicePayload& payload : payloads_) {
        payload.body_offset = offset_of(payload.body_offset);
        if (!is_keyed(payload.index_form)) payload.bits_offset = payload.body_offset;
        payload.scale_offset = offset_of(payload.scale_offset);
    }
}

void DecodePlan::write_tables(std::byte* ret_upload, const std::byte* staging) const {
    std::memset(ret_upload, 0, layout_.tables_bytes);
    write_rows(std::span(payloads_), ret_upload + layout_.payloads);
    write_rows(std::span(lists_), ret_upload + layout_.lists);
    write_rows(std::span(chunks_), ret_upload + layout_.chunks);
    write_rows(std::span(tensors_), ret_upload + layout_.tensors);
    results_.write_rows(staging, reinterpret_cast<DeviceResult*>(ret_upload + layout_.results));
    write_rows(std::span(last_touched_), ret_upload + layout_.last_touched);
}

}  // namespace gradsieve::codec::cuda

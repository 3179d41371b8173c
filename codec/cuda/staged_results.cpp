#include "codec/cuda/staged_results.hpp"

#include "codec/cuda/vector_bytes.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {

namespace {

bool is_reached(const GpuResult& result, const DevicePlace& place) {
    return place.reaches(result.device) && (result.views.empty() || result.views[place.place] != nullptr);
}

}  // namespace

void StagedResults::clear() {
    tensors_.clear();
    rows_.clear();
    copies_.clear();
    most_bytes_ = 0;
}

void StagedResults::add_tensor(const GpuDecodeRequest& request, const DevicePlace& place) {
    place_ = place;
    TensorResults tensor;
    tensor.results = request.results;
    tensor.first_row = static_cast<std::uint32_t>(rows_.size());
    for (const GpuResult& result : request.results) {
        if (!is_reached(result, place)) {
            tensor.is_staged[static_cast<std::size_t>(result.type)] = true;
            continue;
        }
        void* const data = result.views.empty() ? result.data : result.views[place.place];
        rows_.push_back({{data, result.type, result.holds_last_result}, false});
        ++tensor.direct_rows;
    }
    tensors_.push_back(tensor);
}

ByteCount StagedResults::chunk_bytes(std::size_t tensor, ElementCount elements) const {
    ByteCount bytes = 0;
    for (std::size_t type = 0; type < kTypes; ++type)
        if (tensors_[tensor].is_staged[type])
            bytes += elements * element_bytes(static_cast<ElementType>(type)) + kVectorBytes;
    return bytes;
}

void StagedResults::stage_chunk(DeviceChunk& inout_chunk, ByteCount& inout_offset) {
    const TensorResults& tensor = tensors_[inout_chunk.tensor];
    inout_chunk.first_result = tensor.first_row;
    inout_chunk.results = tensor.direct_rows;
    if (std::ranges::none_of(tensor.is_staged, [](bool is_staged) { return is_staged; })) return;
    inout_chunk.first_result = static_cast<std::uint32_t>(rows_.size());
    for (std::uint32_t row = 0; row < tensor.direct_rows; ++row) rows_.push_back(Row(rows_[tensor.first_row + row]));
    for (std::size_t number = 0; number < kTypes; ++number) {
        if (!tensor.is_staged[number]) continue;
        const auto type = static_cast<ElementType>(number);
        const ByteCount offset = aligned(inout_offset);
        inout_offset = offset + inout_chunk.elements * element_bytes(type);
        auto* data = reinterpret_cast<void*>(offset - inout_chunk.first_element * element_bytes(type));
        rows_.push_back({{data, type, false}, true});
        ++inout_chunk.results;
        copy_to_all(tensor, type, inout_chunk, offset);
    }
    most_bytes_ = std::max(most_bytes_, inout_offset);
}

void StagedResults::copy_to_all(const TensorResults& tensor, ElementType type, const DeviceChunk& chunk,
                                ByteCount offset) {
    for (const GpuResult& result : tensor.results)
        if (result.type == type && !is_reached(result, place_))
            copies_.push_back({offset, static_cast<std::byte*>(result.data) + chunk.first_element * element_bytes(type),
                               result.device, chunk.elements * element_bytes(type)});
}

void StagedResults::write_rows(const std::byte* staging, DeviceResult* ret_rows) const {
    for (const Row& row : rows_) {
        *ret_rows = row.result;
        if (row.is_staged)
            ret_rows->data = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(row.result.data) +
                                                     reinterpret_cast<std::uintptr_t>(staging));
        ++ret_rows;
    }
}

}  // namespace gradsieve::codec::cuda

#include "codec/cuda/staged_samples.hpp"

#include "codec/cuda/vector_bytes.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {
namespace {

std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

void StagedSamples::clear() {
    sources_.clear();
    tensors_.clear();
    samples_.clear();
    moments_.clear();
    chunk_rows_.clear();
    copies_.clear();
    most_bytes_ = 0;
}

void StagedSamples::add_tensor() {
    TensorArrays arrays;
    arrays.first_source = sources_.size();
    arrays.rows = {static_cast<std::uint32_t>(samples_.size()), static_cast<std::uint32_t>(moments_.size())};
    tensors_.push_back(arrays);
}

void StagedSamples::add_sample(const Source& source) {
    sources_.push_back(source);
    samples_.push_back({number_of(source.data), false, source.weight, source.type});
    ++tensors_.back().sample_count;
    tensors_.back().has_staged |= source.is_staged;
}

void StagedSamples::add_moment(const Source& source) {
    sources_.push_back(source);
    moments_.push_back({number_of(source.data), false, 0, 0});
    ++tensors_.back().moment_count;
    tensors_.back().has_staged |= source.is_staged;
}

ByteCount StagedSamples::chunk_bytes(std::size_t tensor, ElementCount elements) const {
    ByteCount bytes = 0;
    for (const Source& source : sources_of(tensors_[tensor]))
        if (source.is_staged) bytes += elements * source.element_bytes + 2 * kVectorBytes;
    return bytes;
}

StagedSamples::Row StagedSamples::stage(const Source& source, std::uint32_t chunk_index, ElementCount elements,
                                        ByteCount& inout_offset) {
    const Row plain{number_of(source.data), false, source.weight, source.type};
    if (!source.is_staged) return plain;
    const ByteCount before_bytes = chunk_index * kChunkElements * source.element_bytes;
    const std::byte* begin = source.data + before_bytes;
    // Between the same boundaries as its source, so that both allow the same vectors.
    const ByteCount offset = aligned(inout_offset) + number_of(begin) % kVectorBytes;
    const ByteCount bytes = elements * source.element_bytes;
    copies_.push_back({begin, source.device, offset, bytes});
    inout_offset = offset + bytes;
    // The kernels count elements from the start of the part, of which the staging memory has this chunk alone.
    return {offset - before_bytes, true, source.weight, source.type};
}

std::uint32_t StagedSamples::stage_chunk(std::size_t tensor, std::uint32_t chunk_index, ElementCount elements,
                                         ByteCount& inout_offset) {
    const TensorArrays& arrays = tensors_[tensor];
    const auto number = static_cast<std::uint32_t>(chunk_rows_.size());
    chunk_rows_.push_back(arrays.rows);
    if (!arrays.has_staged) return number;
    chunk_rows_.back() = {static_cast<std::uint32_t>(samples_.size()), static_cast<std::uint32_t>(moments_.size())};
    const auto sources = sources_of(arrays);
    for (const Source& source : sources.first(arrays.sample_count))
        samples_.push_back(stage(source, chunk_index, elements, inout_offset));
    for (const Source& source : sources.subspan(arrays.sample_count))
        moments_.push_back(stage(source, chunk_index, elements, inout_offset));
    most_bytes_ = std::max(most_bytes_, inout_offset);
    return number;
}

void StagedSamples::write_rows(const std::byte* staging, SampleView* ret_samples, const float** ret_moments) const {
    const auto address_of = [staging](const Row& row) {
        return reinterpret_cast<const void*>(row.address + (row.is_staged ? number_of(staging) : 0));
    };
    for (const Row& row : samples_) *ret_samples++ = {address_of(row), row.weight, row.type};
    for (const Row& row : moments_) *ret_moments++ = static_cast<const float*>(address_of(row));
}

}  // namespace gradsieve::codec::cuda

// How a batch's plan lies in device memory: one layout, one upload.
#include "codec/cuda/encode_batch.hpp"

#include <cstring>

namespace gradsieve::codec::cuda {
namespace {

constexpr ByteCount kRowAlignment = 16;

ByteCount aligned(ByteCount bytes) { return (bytes + kRowAlignment - 1) / kRowAlignment * kRowAlignment; }

}  // namespace

void EncodeBatch::lay_out() {
    dense_payload_bytes_ = aligned(dense_payload_bytes_);
    payload_bound_bytes_ += dense_payload_bytes_;
    ByteCount at = 0;
    const auto place = [&at](ByteCount& ret_offset, std::size_t count, std::size_t bytes) {
        at = aligned(at);
        ret_offset = at;
        at += ByteCount{count} * bytes;
    };
    place(layout_.tensors, tensors_.size(), sizeof(TensorPlan));
    place(layout_.chunks, chunks_.size(), sizeof(ChunkPlan));
    place(layout_.first_tiles, chunks_.size(), sizeof(std::uint32_t));
    place(layout_.first_groups, chunks_.size(), sizeof(std::uint32_t));
    place(layout_.samples, staged_.sample_rows(), sizeof(SampleView));
    place(layout_.moments, staged_.moment_rows(), sizeof(const float*));
    place(layout_.chunk_states, chunks_.size(), sizeof(ChunkState));
    place(layout_.tickets, passes_.size(), sizeof(std::uint32_t));
    place(layout_.tensor_states, tensors_.size(), sizeof(TensorState));
    place(layout_.cursor, 1, sizeof(std::uint64_t));
    place(layout_.results, chunks_.size(), sizeof(ChunkResult));
    layout_.end = at;
}

void EncodeBatch::write_upload(std::byte* host, const EncodeAddresses& addresses) const {
    const auto write = [host](ByteCount offset, const auto& array) {
        if (!array.empty()) std::memcpy(host + offset, array.data(), array.size() * sizeof(array[0]));
    };
    write(layout_.tensors, tensors_);
    write(layout_.chunks, chunks_);
    write(layout_.first_tiles, first_tiles_);
    write(layout_.first_groups, first_groups_);
    staged_.write_rows(addresses.staging, reinterpret_cast<SampleView*>(host + layout_.samples),
                       reinterpret_cast<const float**>(host + layout_.moments));
    std::memset(host + layout_.chunk_states, 0, layout_.results - layout_.chunk_states);
    std::memcpy(host + layout_.cursor, &dense_payload_bytes_, sizeof(dense_payload_bytes_));
    for (std::size_t pass = 0; pass < passes_.size(); ++pass)
        reinterpret_cast<std::uint32_t*>(host + layout_.tickets)[pass] = passes_[pass].first_tile;
    for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
        reinterpret_cast<TensorState*>(host + layout_.tensor_states)[tensor].non_finite = kAllFinite;
        if (first_shared_[tensor] != kNothing)
            reinterpret_cast<TensorPlan*>(host + layout_.tensors)[tensor].shared =
                addresses.shared + first_shared_[tensor];
    }
    const auto* samples = reinterpret_cast<const SampleView*>(addresses.plan + layout_.samples);
    const auto* moments = reinterpret_cast<const float* const*>(addresses.plan + layout_.moments);
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
        auto& plan = reinterpret_cast<ChunkPlan*>(host + layout_.chunks)[chunk];
        const auto& rows = staged_.chunk_rows(chunk_rows_[chunk]);
        plan.samples = samples + rows.first_sample;
        plan.moments = moments + rows.first_moment;
    }
}

}  // namespace gradsieve::codec::cuda

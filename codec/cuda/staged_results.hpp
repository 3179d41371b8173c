// Where the kernels of one device write a batch's averages: rows of addresses, one set for each tensor, and for each
// chunk of a tensor some of whose results are out of the device's reach. Those get theirs by copies from memory of the
// device, once a round's averages are there; this plans them. Knows no CUDA. Owned by the device's plan.
#pragma once

#include "codec/cuda/decode_tables.hpp"
#include "codec/cuda/gpu_decoder.hpp"
#include "codec/cuda/peer_access.hpp"

#include <vector>

namespace gradsieve::codec::cuda {

/// A chunk of averages on its way to a result.
struct ResultCopy {
    ByteCount offset = 0;  ///< in the staging memory
    std::byte* target = nullptr;
    int target_device = 0;
    ByteCount bytes = 0;
};

class StagedResults {
public:
    void clear();
    /// The next tensor's results.
    void add_tensor(const GpuDecodeRequest& request, const DevicePlace& place);
    /// Bytes that a chunk of so many elements needs in the staging memory, at most; 0: nothing of the tensor is staged.
    [[nodiscard]] ByteCount chunk_bytes(std::size_t tensor, ElementCount elements) const;
    /// Sets the chunk's rows; plans copies from `inout_offset` of the staging memory on, and moves it on.
    void stage_chunk(DeviceChunk& inout_chunk, ByteCount& inout_offset);

    [[nodiscard]] std::span<const ResultCopy> copies() const noexcept { return copies_; }
    [[nodiscard]] ByteCount bytes() const noexcept { return most_bytes_; }
    [[nodiscard]] std::size_t rows() const noexcept { return rows_.size(); }
    void write_rows(const std::byte* staging, DeviceResult* ret_rows) const;

private:
    /// One for each type; the average is rounded once for all results of it.
    static constexpr std::size_t kTypes = 3;
    struct TensorResults {
        std::span<const GpuResult> results;
        std::uint32_t first_row = 0, direct_rows = 0;
        bool is_staged[kTypes] = {};
    };
    /// Of a staged row, `data` counts from the start of the staging memory.
    struct Row {
        DeviceResult result;
        bool is_staged = false;
    };
    void copy_to_all(const TensorResults& tensor, ElementType type, const DeviceChunk& chunk, ByteCount offset);

    DevicePlace place_;
    std::vector<TensorResults> tensors_;
    std::vector<Row> rows_;
    std::vector<ResultCopy> copies_;
    ByteCount most_bytes_ = 0;
};

}  // namespace gradsieve::codec::cuda

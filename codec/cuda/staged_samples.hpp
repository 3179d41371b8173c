// Where the kernels of one device find a batch's samples and second moments: rows of addresses, one set of rows for
// each tensor, and for each chunk of a tensor some of whose arrays are out of the device's reach. Those are copied to
// it in time; this plans the copies. Knows no CUDA. Owned by the device's batch.
#pragma once

#include "codec/cuda/encode_plan.hpp"
#include "codec/cuda/gpu_encoder.hpp"

#include <vector>

namespace gradsieve::codec::cuda {

/// A chunk of one array on its way to where it can be read.
struct StageCopy {
    const std::byte* source = nullptr;
    int source_device = 0;
    ByteCount offset = 0;  ///< in the staging memory
    ByteCount bytes = 0;
};

class StagedSamples {
public:
    /// One array of a tensor, from the first element that the device codes.
    struct Source {
        const std::byte* data = nullptr;
        ByteCount element_bytes = 4;
        int device = 0;
        bool is_staged = false;
        float weight = 0;        ///< samples
        std::uint32_t type = 0;  ///< samples
    };

    void clear();
    /// The next tensor, then its samples, then its second moments.
    void add_tensor();
    void add_sample(const Source& source);
    void add_moment(const Source& source);
    /// Bytes that a chunk of so many elements needs in the staging memory, at most; 0: nothing of the tensor is staged.
    [[nodiscard]] ByteCount chunk_bytes(std::size_t tensor, ElementCount elements) const;
    /// Plans the copies of a chunk to `inout_offset` of the staging memory, and moves it on. Returns the chunk's
    /// number, by which rows_of finds its rows. In a chunk's turn: kernels read what is copied now before the next
    /// pass.
    std::uint32_t stage_chunk(std::size_t tensor, std::uint32_t chunk_index, ElementCount elements,
                              ByteCount& inout_offset);

    [[nodiscard]] std::span<const StageCopy> copies() const noexcept { return copies_; }
    [[nodiscard]] ByteCount bytes() const noexcept { return most_bytes_; }

    // Rows as they are uploaded.
    [[nodiscard]] std::size_t sample_rows() const noexcept { return samples_.size(); }
    [[nodiscard]] std::size_t moment_rows() const noexcept { return moments_.size(); }
    /// First row of a tensor's samples and moments, or of a staged chunk's.
    struct Rows {
        std::uint32_t first_sample = 0, first_moment = 0;
    };
    [[nodiscard]] const Rows& tensor_rows(std::size_t tensor) const noexcept { return tensors_[tensor].rows; }
    [[nodiscard]] const Rows& chunk_rows(std::uint32_t number) const noexcept { return chunk_rows_[number]; }
    void write_rows(const std::byte* staging, SampleView* ret_samples, const float** ret_moments) const;

private:
    struct TensorArrays {
        std::size_t first_source = 0, sample_count = 0, moment_count = 0;
        Rows rows;
        bool has_staged = false;
    };
    /// Where a row points: into the staging memory, counted from its start, or anywhere.
    struct Row {
        std::uintptr_t address = 0;
        bool is_staged = false;
        float weight = 0;
        std::uint32_t type = 0;
    };
    [[nodiscard]] std::span<const Source> sources_of(const TensorArrays& arrays) const {
        return std::span(sources_).subspan(arrays.first_source, arrays.sample_count + arrays.moment_count);
    }
    [[nodiscard]] Row stage(const Source& source, std::uint32_t chunk_index, ElementCount elements,
                            ByteCount& inout_offset);

    std::vector<Source> sources_;
    std::vector<TensorArrays> tensors_;
    std::vector<Row> samples_, moments_;
    std::vector<Rows> chunk_rows_;
    std::vector<StageCopy> copies_;
    ByteCount most_bytes_ = 0;
};

}  // namespace gradsieve::codec::cuda

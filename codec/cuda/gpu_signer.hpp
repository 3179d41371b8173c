// Signatures (codec/stages/similarity.hpp) of arrays in the memory of one device, and of means of arrays that it
// reaches or gets copied: sums of chunks, which the host joins over all devices of a tensor, so that no bit depends on
// how many there are. Many arrays at a time. GPU worker thread.
#pragma once

#include "codec/cuda/device.hpp"
#include "codec/cuda/sample_source.hpp"
#include "codec/cuda/signature_kernels.hpp"
#include "codec/stages/similarity.hpp"

#include <span>
#include <vector>

namespace gradsieve::codec::cuda {

class GpuSigner {
public:
    // ---- calls nothing of CUDA; nothing is under way ----
    void clear();
    /// The next array: this device's `range` of the weighted sum of `samples`, each from element range.first on.
    /// `range` may be empty.
    void add(TensorId tensor, const DeviceRange& range, std::span<const StagedSamples::Source> samples);

    /// Makes room for what was added; waits for the stream where memory has to grow. `staging_bytes`: as
    /// GpuEncoderLimits says. Errors: kResourceExhausted, kUnavailable.
    [[nodiscard]] Status prepare(const Stream& stream, ByteCount staging_bytes);
    /// Behind what the stream holds; does not wait. Errors: kUnavailable.
    [[nodiscard]] Status start(const Stream& stream);
    /// Once the stream is synchronized: the chunks of the array of that number, in the order in which they were added.
    void add_chunks(std::size_t number, Signature& inout_signature) const;

    [[nodiscard]] ByteCount workspace_bytes() const noexcept {
        return plan_.size() + group_sums_.size() + chunk_sums_.size() + staging_.size();
    }

private:
    struct Array {
        TensorId tensor = 0;
        DeviceRange range;
        std::uint32_t sample_count = 0;
        std::size_t first_chunk = 0, chunk_count = 0;
    };
    /// Chunks between whose copies and kernels nothing else has to happen.
    struct Pass {
        std::size_t first_copy = 0, copy_count = 0;
        std::uint32_t first_chunk = 0, chunk_count = 0, first_group = 0, group_count = 0;
    };
    void plan_chunks(ByteCount staging_bytes);
    void write_plan(std::byte* host) const;

    // of what was added
    std::vector<Array> arrays_;
    StagedSamples staged_;
    std::vector<SignChunk> chunks_;
    std::vector<std::uint32_t> chunk_rows_;  ///< staged_'s number of each chunk
    std::vector<SignGroup> groups_;
    std::vector<Pass> passes_;
    ByteCount groups_at_ = 0, samples_at_ = 0, plan_bytes_ = 0;
    // grows to its largest use
    DeviceMemory plan_, group_sums_, chunk_sums_, staging_;
    PinnedMemory upload_, download_;
};

}  // namespace gradsieve::codec::cuda

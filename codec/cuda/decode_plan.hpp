// What the host does for a device's part of a batch before the GPU sees it: reads every payload's header, checks all
// that needs no pass over the bits, and lays out one upload: the kernels' tables, then the payloads' bytes. Knows no
// CUDA. One thread; the arrays are kept from batch to batch.
#pragma once

#include "codec/cuda/decode_refusal.hpp"
#include "codec/cuda/decode_tables.hpp"
#include "codec/cuda/gpu_decoder.hpp"
#include "codec/cuda/staged_results.hpp"
#include "codec/payload_reader.hpp"

namespace gradsieve::codec::cuda {

/// Bytes of a payload and where they lie in the upload.
struct UploadPiece {
    const std::byte* source = nullptr;
    ByteCount bytes = 0;
    ByteCount offset = 0;
};

/// Where the parts of the upload begin; pieces that the GPU fetches by itself lie behind all others. `answers` stands
/// first: it is uploaded as zeros and comes back.
struct UploadLayout {
    ByteCount reports = 0, touched = 0, payload_faults = 0;
    ByteCount answers_bytes = 0;
    ByteCount payloads = 0, lists = 0, chunks = 0, tensors = 0, results = 0, last_touched = 0;
    ByteCount tables_bytes = 0;  ///< all of the above
    ByteCount sent_bytes = 0;    ///< with the pieces that the host gathers, and what a kernel may read behind them
    ByteCount total_bytes = 0;   ///< with those that the GPU fetches, and as much again
};

/// One request: refused on the host, or a part of the tables.
struct TensorDecodePlan {
    Status refusal;
    std::uint32_t first_payload = 0;
    std::uint32_t payloads = 0;
    std::uint32_t first_word = 0;  ///< in `touched`
    std::uint32_t words = 0;
};

class DecodePlan {
public:
    /// Plans what the device of that place does of a batch; `requests` stay until the next call. Tensors that are
    /// corrupt in its part get a `refusal` and no work. Errors: kInvalidArgument.
    [[nodiscard]] Status make(std::span<const GpuDecodeRequest> requests, const DevicePlace& place = {},
                              const GpuDecoderLimits& limits = {});
    /// Writes the tables to the start of the upload: layout().tables_bytes. `staging`: device memory of
    /// results().bytes().
    void write_tables(std::byte* ret_upload, const std::byte* staging = nullptr) const;

    /// Rows of what the device fetches, and these.
    [[nodiscard]] std::size_t fetch_rows() const noexcept;
    void write_fetches(FetchPiece* ret_rows) const;

    [[nodiscard]] std::span<const GpuDecodeRequest> requests() const noexcept { return requests_; }
    [[nodiscard]] const UploadLayout& layout() const noexcept { return layout_; }
    /// For the host to gather; for the GPU to fetch, since it reads that memory. Offsets ascend.
    [[nodiscard]] std::span<const UploadPiece> pieces() const noexcept { return pieces_; }
    [[nodiscard]] std::span<const UploadPiece> fetched_pieces() const noexcept { return fetched_pieces_; }
    [[nodiscard]] std::span<const DecodeRound> rounds() const noexcept { return rounds_; }
    [[nodiscard]] const StagedResults& results() const noexcept { return results_; }
    [[nodiscard]] const TensorDecodePlan& plan_of(std::size_t request) const { return plans_[request]; }
    /// A request's payloads in the order of the tables: by chunk, then by node.
    [[nodiscard]] std::span<const PlannedPayload> payloads_of(std::size_t request) const {
        return std::span(sources_).subspan(plans_[request].first_payload, plans_[request].payloads);
    }
    /// Workspace of the largest round.
    [[nodiscard]] std::uint64_t round_entries() const noexcept { return round_entries_; }
    /// Bitmaps of all keyed lists.
    [[nodiscard]] ByteCount mask_bytes() const noexcept { return mask_bytes_; }
    [[nodiscard]] std::uint64_t round_table_words() const noexcept { return round_table_words_; }

private:
    void clear();
    Status plan_tensor(const GpuDecodeRequest& request, const DevicePlace& place);
    Status plan_chunks(const GpuDecodeRequest& request, const DeviceRange& range);
    [[nodiscard]] bool add_payload(const PlannedPayload& source, const GpuDecodeRequest& request, ElementCount elements,
                                   DeviceChunk& inout_chunk);
    void add_rotation(PhiloxKey key, DeviceChunk& inout_chunk);
    void add_list(const PayloadView& view, DevicePayload& inout_payload);
    void add_dense(const PayloadView& view, DevicePayload& inout_payload);
    /// Where the bytes will lie: kFetched and behind those that are fetched, or behind those that are not.
    ByteCount place(ByteView bytes);
    [[nodiscard]] ByteCount offset_of(ByteCount placed) const noexcept;
    void order_chunks();
    Status cut_rounds(const GpuDecoderLimits& limits);
    void add_lists(const DeviceChunk& chunk, std::uint64_t& inout_entries, std::uint64_t& inout_words);
    void lay_out();

    std::span<const GpuDecodeRequest> requests_;
    const MirrorPool* mirrors_ = nullptr;
    std::vector<TensorDecodePlan> plans_;
    std::vector<PlannedPayload> sources_;
    std::vector<std::size_t> cursors_;
    std::vector<DevicePayload> payloads_;
    std::vector<std::uint32_t> lists_;
    std::vector<DeviceChunk> chunks_;
    std::vector<DeviceTensor> tensors_;
    StagedResults results_;
    std::vector<std::uint32_t> last_touched_;
    std::vector<UploadPiece> pieces_, fetched_pieces_;
    std::vector<DecodeRound> rounds_;
    std::vector<Bytes> expanded_;  ///< payloads whose values were coded, of which expanded_count_ are in use
    std::size_t expanded_count_ = 0;
    UploadLayout layout_;
    ByteCount piece_bytes_ = 0, fetched_bytes_ = 0, mask_bytes_ = 0;
    std::uint32_t units_ = 0;
    std::uint64_t round_entries_ = 0;
    std::uint64_t round_table_words_ = 0;
};

}  // namespace gradsieve::codec::cuda

// What the decoder's host and its kernels agree on: the tables of one batch, as they lie in device memory, and the
// launchers. Written by decode_plan.cpp, read by decode_lists.cu and decode_tiles.cu. Plain values; no CUDA headers, so
// that ordinary C++ may include it.
#pragma once

#include "base/id.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/cuda/vector_bytes.hpp"
#include "codec/payload.hpp"
#include "codec/random_selection.hpp"

namespace gradsieve::codec::cuda {

/// What one warp averages at a time. List tables say where each unit begins.
inline constexpr std::uint32_t kUnitElements = 1024;
inline constexpr std::uint32_t kUnitsPerTile = static_cast<std::uint32_t>(kTileElements) / kUnitElements;
inline constexpr std::uint32_t kUnitsPerChunk = static_cast<std::uint32_t>(kChunkElements) / kUnitElements;

[[nodiscard]] constexpr std::uint32_t units_of(ElementCount elements) noexcept {
    return static_cast<std::uint32_t>((elements + kUnitElements - 1) / kUnitElements);
}
/// A list's table, written by the first kernel for the second: for each unit its first element in the list, and the
/// end. Direct lists also have: how many index bits there are; the byte of the body at which the values begin; for each
/// tile the biased exponent (pow2) or the fp32 bits of the scale (sign).
[[nodiscard]] constexpr std::uint32_t table_words(ElementCount elements) noexcept {
    return units_of(elements) + 3 + static_cast<std::uint32_t>(tiles_of(elements));
}

/// One node's payload of one chunk. Offsets count from the uploaded bytes. Everything here was checked on the host:
/// sections of known length lie inside the payload, counts and parameters are in their ranges.
struct DevicePayload {
    std::uint64_t body_offset = 0;   ///< list: bytes behind the header; dense: value section, on 16 bytes
    std::uint64_t scale_offset = 0;  ///< dense, with tile scales: fp32 each, on 16 bytes
    std::uint32_t body_bytes = 0;    ///< list: all behind the header
    std::uint32_t count = 0;
    std::uint32_t chunk_elements = 0;
    std::uint32_t tensor = 0;
    std::uint32_t entry_offset = 0;  ///< list, not direct: its elements in `indices` and `values`
    std::uint32_t table_offset = 0;  ///< list: its table in `list_tables`, in words
    float factor = 0;
    float chunk_scale = 0;
    QuantizerKind quantizer{};
    IndexForm index_form = IndexForm::kEvery;
    std::uint8_t value_bits = 0;
    std::uint8_t code_bits = 0;        ///< of one value where it is no fp number
    std::uint8_t index_parameter = 0;  ///< Rice: its parameter; Elias-Fano: lower bits
    std::uint8_t exponent_parameter = 0;
    std::uint8_t base_exponent = 0;
    bool is_list = false;
    /// List whose indices are one bit for each element (bitmap, also one that a key stands for; Rice of parameter 0,
    /// whose quotients are a bitmap up to the last one) or none (every): the second kernel reads it in place.
    bool is_direct = false;
    bool has_chunk_scale = false;
    bool is_paper_word = false;
    std::uint8_t bucket_log2 = 0;   ///< minmax
    float base = 0;                 ///< exponential_dither; integer: what whole numbers are multiplied by
    std::uint64_t bits_offset = 0;  ///< direct: where the index bits begin, among the bytes or, keyed, the masks
    SelectionRule rule;             ///< keyed; its key: of a rotation
};

/// One chunk of one tensor with the payloads that it has, in node order.
struct DeviceChunk {
    std::uint64_t first_element = 0;  ///< in the tensor
    std::uint64_t digest_key = 0;
    std::uint32_t first_unit = 0;  ///< in the batch; its units are consecutive
    std::uint32_t units = 0;
    std::uint32_t elements = 0;
    std::uint32_t tensor = 0;
    std::uint32_t first_payload = 0;
    std::uint32_t payloads = 0;
    std::uint32_t first_result = 0;
    std::uint32_t results = 0;
    bool has_dense = false;
    bool has_direct = false;
    bool has_lists = false;
    bool has_exponential = false;        ///< a payload of exponential_dither, minmax or integer: kernels of their own
    std::uint32_t votes = 0;             ///< all payloads are votes, and so many; 0: values
    bool has_keyed = false;              ///< a list whose positions follow from a key
    bool is_rotated = false;             ///< all payloads are, and dense
    bool has_several_rotations = false;  ///< whose keys differ
    bool has_base = false;               ///< the tensor has one; every element is written then
};

struct DeviceTensor {
    std::uint32_t first_word = 0;  ///< in `last_touched` and `touched`
    bool knows_last = false;       ///< `last_touched` says what the results hold
    /// What averages are added to, and what the sums are kept in: where element 0 of the tensor would be.
    const float* base_in = nullptr;
    float* base_out = nullptr;
};

/// `data` is where element 0 of the tensor would be; of a result that is staged there is one chunk alone.
struct DeviceResult {
    void* data = nullptr;
    ElementType type = ElementType::kF32;
    bool holds_last = false;
};

/// What the kernels report of one tensor. If one of the flags is set, a payload is corrupt and the numbers mean
/// nothing. Two flags, each written by one kernel: the second kernel may read the first one's without a race.
struct TensorReport {
    unsigned long long digest = 0;
    unsigned long long touched_elements = 0;
    std::uint32_t has_bad_list = 0;
    std::uint32_t has_bad_value = 0;
    unsigned long long bad_sum = 0;  ///< ~ of the first element whose sum with the base is not finite; 0: all are
};

/// Device pointers to everything; passed to the kernels by value.
struct DecodeTables {
    // Uploaded, never written.
    const std::byte* bytes = nullptr;
    const DevicePayload* payloads = nullptr;
    const std::uint32_t* lists = nullptr;  ///< which of `payloads` are lists, in the order of the chunks
    const DeviceChunk* chunks = nullptr;
    const DeviceTensor* tensors = nullptr;
    const DeviceResult* results = nullptr;
    const std::uint32_t* last_touched = nullptr;
    // Uploaded as zeros and filled.
    TensorReport* reports = nullptr;
    std::uint32_t* touched = nullptr;
    std::uint32_t* payload_faults = nullptr;
    // Between the kernels.
    std::byte* mask_bytes = nullptr;   ///< bitmaps of keyed lists
    std::uint32_t* indices = nullptr;  ///< of a list's elements, in the chunk
    float* values = nullptr;           ///< fl(factor * value)
    std::uint32_t* list_tables = nullptr;
};

/// The bits of a direct list's indices.
[[nodiscard]] GRADSIEVE_HOST_DEVICE inline const std::byte* index_bits_of(const DecodeTables& tables,
                                                                          const DevicePayload& payload) noexcept {
    return (is_keyed(payload.index_form) ? tables.mask_bytes : tables.bytes) + payload.bits_offset;
}

/// A part of the batch whose lists fit into the workspace: consecutive chunks, all with a dense payload or all
/// without, and the same of exponential_dither, minmax and integer, of rotations and of bases.
struct DecodeRound {
    std::uint32_t first_list = 0, lists = 0;  ///< in `lists`
    std::uint32_t first_chunk = 0, chunks = 0;
    std::uint32_t first_unit = 0, units = 0;
    bool has_dense = false;
    bool has_exponential = false;
    bool has_keyed = false;
    bool is_rotated = false;
    std::uint32_t first_copy = 0, copies = 0;  ///< of staged results, by the host
    bool has_base = false;
};

/// A piece of payload in host memory that the device reads, and where in the upload it goes; what lies behind it up to
/// `target_bytes`, a multiple of 4, is cleared.
struct FetchPiece {
    const std::byte* source;
    ByteCount offset;
    std::uint32_t bytes;
    std::uint32_t target_bytes;
};
/// Kernels load whole vectors.
inline constexpr ByteCount kReadBehind = kVectorBytes;
/// The longest that one block should fetch.
inline constexpr std::uint32_t kFetchBytes = 1U << 16U;
/// Fetches all of them; `pieces` is memory that the device reads too. As the others, a cudaError_t.
[[nodiscard]] int launch_fetch_pieces(const FetchPiece* pieces, std::uint32_t count, std::byte* upload, void* stream);

/// Draws the bitmaps of every keyed list of the round. As the next one.
[[nodiscard]] int launch_draw_masks(const DecodeTables& tables, const DecodeRound& round, void* stream);
/// Reads and checks every list of the round: `indices`, `values` and `list_tables`; marks what is corrupt. Enqueues on
/// `stream` (cudaStream_t); the answer is a cudaError_t.
[[nodiscard]] int launch_decode_lists(const DecodeTables& tables, const DecodeRound& round, void* stream);

/// Blocks of each average kernel that are resident on a device at once.
struct AverageBlocks {
    unsigned lists = 0, dense = 0, rotated = 0;
};
/// Blocks of the kernel of rotations that a multiprocessor has registers for.
inline constexpr unsigned kRotatedBlocks = 3;
/// Averages, writes and digests every unit of the round but those of tensors with a bad list.
[[nodiscard]] int launch_average_units(const DecodeTables& tables, const DecodeRound& round,
                                       const AverageBlocks& blocks, void* stream);
/// The same of a round of rotations, which the one above starts.
[[nodiscard]] int launch_average_rotated(const DecodeTables& tables, const DecodeRound& round,
                                         const AverageBlocks& blocks, void* stream);
/// Of the current device, if it had no more than `multiprocessors` (0: as many as it has). The answer is a cudaError_t.
[[nodiscard]] int find_average_blocks(unsigned multiprocessors, AverageBlocks& ret_blocks);

}  // namespace gradsieve::codec::cuda

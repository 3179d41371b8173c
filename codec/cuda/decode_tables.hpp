// What the decoder's host and its kernels agree on: the tables of one batch, as they lie in device memory, and the
// launchers. Written by decode_plan.cpp, read by decode_lists.cu and decode_tiles.cu. Plain values; no CUDA headers, so
// that ordinary C++ may include it.
#pragma once

#include "base/id.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/payload.hpp"

namespace gradsieve::codec::cuda {

/// Threads of a block of each kernel; the host sizes grids by blocks alone.
inline constexpr unsigned kListThreads = 512;
inline constexpr unsigned kTileThreads = 256;
/// First list element of each tile of a chunk, and the end.
inline constexpr std::uint32_t kStartsPerList = kMaximumTiles + 1;

/// One node's payload of one chunk. Offsets count from the uploaded bytes. Everything here was checked on the host:
/// sections of known length lie inside the payload, counts and parameters are in their ranges.
struct DevicePayload {
    std::uint64_t body_offset = 0;   ///< list: bytes behind the header; dense: value section, on 16 bytes
    std::uint64_t scale_offset = 0;  ///< dense sign with tile scales: fp32 each, on 16 bytes
    std::uint64_t entry_offset = 0;  ///< list: its elements in `indices` and `values`
    std::uint32_t body_bytes = 0;    ///< list: all behind the header
    std::uint32_t count = 0;
    std::uint32_t chunk_elements = 0;
    std::uint32_t tensor = 0;
    std::uint32_t list = 0;  ///< list: which kStartsPerList of `starts`
    float factor = 0;
    float chunk_scale = 0;
    QuantizerKind quantizer = QuantizerKind::kF32;
    IndexForm index_form = IndexForm::kEvery;
    std::uint8_t value_bits = 0;
    std::uint8_t pow2_bits = 0;
    std::uint8_t rice_parameter = 0;
    std::uint8_t exponent_parameter = 0;
    std::uint8_t base_exponent = 0;
    bool is_list = false;
    bool has_chunk_scale = false;
    bool is_paper_word = false;
};

/// One chunk of one tensor with the payloads that it has, in node order.
struct DeviceChunk {
    std::uint64_t first_element = 0;  ///< in the tensor
    std::uint64_t digest_key = 0;
    std::uint32_t first_tile = 0;  ///< in the batch; its tiles are consecutive
    std::uint32_t tiles = 0;
    std::uint32_t elements = 0;
    std::uint32_t tensor = 0;
    std::uint32_t first_payload = 0;
    std::uint32_t payloads = 0;
    bool has_dense = false;
};

struct DeviceTensor {
    std::uint32_t first_result = 0;
    std::uint32_t results = 0;
    std::uint32_t first_word = 0;  ///< in `last_touched` and `touched`
    bool knows_last = false;       ///< `last_touched` says what the results hold
};

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
};

/// Device pointers to everything; passed to the kernels by value.
struct DecodeTables {
    // Uploaded, never written.
    const std::byte* bytes = nullptr;
    const DevicePayload* payloads = nullptr;
    const DeviceChunk* chunks = nullptr;
    const DeviceTensor* tensors = nullptr;
    const DeviceResult* results = nullptr;
    const std::uint32_t* last_touched = nullptr;
    // Uploaded as zeros and filled.
    TensorReport* reports = nullptr;
    std::uint32_t* touched = nullptr;
    std::uint32_t* payload_faults = nullptr;
    // Between the kernels.
    std::uint32_t* indices = nullptr;  ///< of a list's elements, in the chunk
    float* values = nullptr;           ///< fl(factor * value)
    std::uint32_t* starts = nullptr;
};

/// A part of the batch whose lists fit into the workspace: consecutive chunks and their payloads.
struct DecodeRound {
    std::uint32_t first_payload = 0, payloads = 0;
    std::uint32_t first_chunk = 0, chunks = 0;
    std::uint32_t first_tile = 0, tiles = 0;
    bool has_lists = false;
};

/// Reads and checks every list of the round into `indices`, `values` and `starts`; marks what is corrupt. Enqueues on
/// `stream` (cudaStream_t); the answer is a cudaError_t.
[[nodiscard]] int launch_decode_lists(const DecodeTables& tables, const DecodeRound& round, void* stream);
/// Averages, writes and digests every tile of the round but those of tensors with a bad list. `blocks`: of
/// average_tiles_blocks().
[[nodiscard]] int launch_average_tiles(const DecodeTables& tables, const DecodeRound& round, unsigned blocks,
                                       void* stream);
/// How many blocks of the average kernel are resident on the current device at once. The answer is a cudaError_t.
[[nodiscard]] int average_tiles_blocks(unsigned& ret_blocks);

}  // namespace gradsieve::codec::cuda

// Decoding the payloads of all nodes of one step, in node order, into one average. Payload bytes are untrusted: every
// count and index is checked, and a bad payload is refused with a reason. Single-threaded per tensor; the caller owns
// the result memory, and only this code writes it.
#pragma once

#include "base/bytes.hpp"
#include "base/id.hpp"
#include "base/status.hpp"

#include <functional>
#include <memory>
#include <span>

namespace gradsieve::codec {

struct ChunkView {
    std::uint32_t chunk_index = 0;
    ByteView bytes;
};
/// What one node sent for a tensor: strictly ascending chunks; a chunk left out contributes zero.
struct Contribution {
    float factor = 0;  ///< fl(local ranks / world size)
    std::span<const ChunkView> chunks;
};
struct DecodeResult {
    /// Sum over touched elements of mix64(tensor, step, index, bits) mod 2^64: order-free; equal on every node.
    std::uint64_t digest = 0;
    ElementCount touched_elements = 0;
};

/// One tensor's averaged result: remembers what the last step touched, so that a sparse step clears only that.
class ResultTensor {
public:
    /// `memory`: `elements` floats, zero, written by this object only.
    ResultTensor(TensorId tensor, float* memory, ElementCount elements);
    ResultTensor(ResultTensor&&) noexcept;
    ResultTensor& operator=(ResultTensor&&) noexcept;
    ~ResultTensor();

    /// result = sum over contributions in the given order of fl(factor * decoded), starting from +0; others 0.
    /// Errors: kCorrupt (which contribution, which chunk, what is wrong); then the result is unspecified until the next
    /// successful call, which starts from a full clear.
    [[nodiscard]] Result<DecodeResult> decode_average(Step step, std::span<const Contribution> contributions);

    /// Fills with quiet NaN (policy skip-step); the next decode starts from a full clear.
    void fill_not_a_number() noexcept;

    /// Copies exact values in (broadcast of parameters) and returns their digest.
    [[nodiscard]] DecodeResult copy_exact(Step step, std::span<const float> values) noexcept;

    /// Every element by `write`, run by run in ascending order: it is told the run's first element and fills its
    /// values, at most a tile of them, all finite. They are what the result holds until then.
    [[nodiscard]] DecodeResult write_all(
        Step step, const std::function<void(ElementCount first, std::span<float> inout_values)>& write);

    /// From here on another tensor's result: `memory` holds anything, and the next decode starts from a full clear.
    void move_to(TensorId tensor, float* memory, ElementCount elements);

    /// These elements, ascending, get a value each, all finite; others 0.
    [[nodiscard]] DecodeResult write_list(Step step, std::span<const ElementCount> elements,
                                          std::span<const float> values);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// Checks a payload completely without writing anything. `elements` = elements of that chunk.
[[nodiscard]] Status validate_chunk(ByteView payload, ElementCount elements);

/// Exact fp32 values as a chunk payload (`all | f32` form) for broadcasts: 1 .. kChunkElements values, any bits.
[[nodiscard]] Bytes build_exact_chunk(std::span<const float> values);
/// And back, bit for bit, also what decode_average would refuse (NaN, infinity) or turn to +0 (-0).
/// Errors: kCorrupt, kVersionMismatch; `ret_values` is then untouched.
[[nodiscard]] Status read_exact_chunk(ByteView payload, std::span<float> ret_values);

}  // namespace gradsieve::codec

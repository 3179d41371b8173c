// Why a tensor's payloads are refused, in the words of codec/decoder.cpp: the GPU says only which payload is corrupt,
// and the CPU's reader finds the reason. Runs for corrupt bytes alone, so it may be slow. Any thread.
#pragma once

#include "codec/decoder.hpp"

namespace gradsieve::codec::cuda {

struct PlannedPayload {
    std::uint32_t node = 0;
    const ChunkView* chunk = nullptr;
};

/// ok, or kCorrupt: chunks out of order or outside the tensor. "contribution N: ...".
[[nodiscard]] Status check_chunk_order(std::span<const Contribution> contributions, std::size_t chunks);

/// The error that ResultTensor::decode_average gives. `payloads`: of a tensor of `elements`, by chunk, then by node.
/// `suspects`: not zero for those that may be corrupt; the others were checked already. Empty: all are suspect.
/// kInternal if there is nothing wrong with any.
[[nodiscard]] Status explain_refusal(ElementCount elements, std::span<const PlannedPayload> payloads,
                                     std::span<const std::uint32_t> suspects);

}  // namespace gradsieve::codec::cuda

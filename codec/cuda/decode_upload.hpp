// Scattered payload bytes into page-locked memory and on to the device, as one range. Large batches are gathered by
// several threads while the first bytes are on their way already. Called by the thread that owns the stream; returns
// when everything is gathered and enqueued.
#pragma once

#include "codec/cuda/decode_plan.hpp"
#include "codec/cuda/gather_threads.hpp"

namespace gradsieve::codec::cuda {

/// Copies `pieces` (ascending offsets) into `staging` behind its first `tables_bytes`, which are filled already, and
/// enqueues the copy of `sent_bytes` to `device_memory`. After an error, what was enqueued is still under way.
[[nodiscard]] Status upload_pieces(std::span<const UploadPiece> pieces, const UploadLayout& layout, std::byte* staging,
                                   std::byte* device_memory, const Stream& stream, GatherThreads& threads);

}  // namespace gradsieve::codec::cuda

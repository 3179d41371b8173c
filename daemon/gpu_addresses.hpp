// Where the kernels of each GPU of a set find the ranks' memory: each at addresses of its own, since what a client's
// handle opens is there for the GPU that opened it. GPU worker thread; what is returned is good as long as the task's
// buffers and itself.
#pragma once

#include "codec/cuda/gpu_decoder.hpp"
#include "daemon/gpu_task.hpp"

#include <span>
#include <vector>

namespace gradsieve::daemon {

/// By the GPU's place; null: out of its reach. Of a set of one GPU, empty: everything lies where the task says.
struct EncodeAddresses {
    std::vector<std::vector<const float*>> samples, second_moments;
    std::vector<codec::cuda::GpuEncodePart> parts;  ///< the task's, with these
};
[[nodiscard]] EncodeAddresses encode_addresses(const CodecTask& task, std::span<const int> ordinals);

/// Of each rank's average, by the GPU's place; null: out of its reach. Empty likewise.
[[nodiscard]] std::vector<std::vector<void*>> result_addresses(const CodecTask& task, std::span<const int> ordinals);

/// What the averages of a tensor with delta are added to, one for each GPU of a set or one; of others, empty.
[[nodiscard]] std::vector<codec::cuda::GpuDecodeBase> decode_bases(const CodecTask& task);

}  // namespace gradsieve::daemon

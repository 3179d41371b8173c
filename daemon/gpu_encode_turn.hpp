// Codec tasks as the GPU's encoder is asked for them, a batch at a time. GPU worker thread.
#pragma once

#include "daemon/gpu_addresses.hpp"

#include <span>
#include <vector>

namespace gradsieve::daemon {

/// What the encoder is asked for a batch; requests point into the other members, which stay where they are.
struct EncodeTurn {
    std::span<GpuTask*> tasks;
    TimePoint begun{};
    std::vector<codec::cuda::GpuEncodeRequest> requests;
    std::vector<std::vector<codec::cuda::ElementType>> types;
    std::vector<std::vector<int>> sample_devices, moment_devices;
    std::vector<EncodeAddresses> addresses;
    std::vector<codec::Pipeline> passes;  ///< of first phases
    std::vector<codec::EncodeResult> results;

    /// `ordinals`: the worker's devices.
    void ask(std::span<GpuTask*> batch, std::span<const int> ordinals);
};

/// How many of the tasks, from the first on, are a batch: up to `elements`, and one at least.
[[nodiscard]] std::size_t batch_length(std::span<GpuTask* const> tasks, ElementCount elements);

}  // namespace gradsieve::daemon

// Where averages are written that no payload of the tensor's own says element by element, and what their digest is made
// of: what kernels of several codecs are told. Plain values.
#pragma once

#include "codec/cuda/gpu_decoder.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

namespace gradsieve::codec::cuda {

struct ResultTargets {
    static constexpr std::size_t kMost = 8;
    void* data[kMost] = {};
    ElementType types[kMost] = {};
    std::uint32_t count = 0;
    std::uint64_t digest_seed = 0;         ///< mix64(mix64(tensor) + step)
    unsigned long long* digest = nullptr;  ///< grows by the elements' digests; null: nobody asks

    /// The first kMost of them.
    void take(std::span<const GpuResult> results) noexcept {
        count = static_cast<std::uint32_t>(std::min(results.size(), kMost));
        for (std::uint32_t target = 0; target < count; ++target) {
            data[target] = results[target].data;
            types[target] = results[target].type;
        }
    }
};

}  // namespace gradsieve::codec::cuda

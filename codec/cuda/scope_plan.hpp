// What the phases of a tensor that is selected together with others mean for a batch: which kernels, what they are told
// of the tensor, and what they say of it. Calls no CUDA.
#pragma once

#include "codec/cuda/encode_plan.hpp"
#include "codec/cuda/gpu_encoder.hpp"

#include <optional>

namespace gradsieve::codec::cuda {

/// Of one tensor of a batch, or one device's part of it.
struct ScopePlan {
    std::optional<ScopePhase> phase{};  ///< none: the whole way at once
    unsigned level = 0;
    TensorState state{};                   ///< what its kernels begin with
    std::uint32_t first_count = kNothing;  ///< of its parts' SharedCounts, where it counts

    /// Whether two tensors may be in one round.
    [[nodiscard]] bool operator==(const ScopePlan& other) const noexcept {
        return phase == other.phase && level == other.level;
    }
};

[[nodiscard]] constexpr bool reads_samples(const GpuEncodeRequest& request) noexcept {
    return !request.scope || request.scope->phase == ScopePhase::kObserve;
}

/// Errors: kInvalidArgument.
[[nodiscard]] Status check_scope(const GpuEncodeRequest& request);
/// `inout_tensor` is filled as if there were no phases. `device`: the place whose part it is.
[[nodiscard]] ScopePlan scope_plan_of(const GpuEncodeRequest& request, std::size_t device, TensorPlan& inout_tensor);
/// Room for the counts of all parts, none yet.
void open_counts(const GpuEncodeRequest& request);
/// What a device counted.
void take_counts(const GpuEncodeRequest& request, std::size_t device, unsigned level, const SharedCounts& counts);

}  // namespace gradsieve::codec::cuda

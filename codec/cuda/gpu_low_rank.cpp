#include "codec/cuda/gpu_low_rank.hpp"

#include "codec/cuda/factor_kernels.hpp"
#include "codec/cuda/runtime.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {
namespace {

Status launched(cudaError_t error) { return status_of(error, "starting a kernel of lowrank"); }

}  // namespace

Status GpuLowRank::project(const Stream& stream, std::span<const ProjectWork> work) {
    std::vector<RoundTrip::Slot> slots;
    for (const ProjectWork& one : work)
        slots.push_back({{std::as_bytes(one.factors), {}}, {std::as_writable_bytes(one.ret_left), {}}, {}});
    return trip_.run(stream, slots, [&](std::size_t number, const RoundTrip::Slot& slot) -> Status {
        const ProjectWork& one = work[number];
        if (one.shape.elements == 0) return {};
        return launched(launch_project(device_matrix(one.shape), one.values, trip_.as<float>(slot.at[0]),
                                       trip_.as<float>(slot.at[2]), static_cast<unsigned>(multiprocessors_),
                                       handle_of(stream)));
    });
}

Status GpuLowRank::settle(const Stream& stream, std::span<const SettleWork> work) {
    std::vector<RoundTrip::Slot> slots;
    for (const SettleWork& one : work)
        slots.push_back({{std::as_bytes(one.left), {}}, {std::as_writable_bytes(one.ret_right), {}}, {}});
    return trip_.run(stream, slots, [&](std::size_t number, const RoundTrip::Slot& slot) -> Status {
        const SettleWork& one = work[number];
        if (one.shape.elements == 0) return {};
        const DeviceMatrix matrix = device_matrix(one.shape);
        const auto* left = trip_.as<float>(slot.at[0]);
        auto* right = trip_.as<float>(slot.at[2]);
        GRADSIEVE_TRY(launched(launch_add_outer(matrix, one.residual, left, right,
                                                static_cast<unsigned>(multiprocessors_), handle_of(stream))));
        return launched(
            launch_subtract(matrix, {one.residual, one.before, one.low_pass}, left, right, handle_of(stream)));
    });
}

Status GpuLowRank::expand(const Stream& stream, std::span<const ExpandWork> work) {
    std::vector<RoundTrip::Slot> slots;
    for (const ExpandWork& one : work) {
        const std::span digest(one.ret_digest, one.ret_digest == nullptr ? 0 : 1);
        slots.push_back(
            {{std::as_bytes(one.left), std::as_bytes(one.right)}, {std::as_writable_bytes(digest), {}}, {}});
    }
    return trip_.run(stream, slots, [&](std::size_t number, const RoundTrip::Slot& slot) -> Status {
        const ExpandWork& one = work[number];
        if (one.shape.elements == 0) return {};
        // Also without a result there is a digest, of the first launch.
        for (std::size_t first = 0; first == 0 || first < one.results.size(); first += ResultTargets::kMost) {
            ResultTargets targets;
            targets.take(std::span(one.results).subspan(first));
            targets.digest_seed = mix64(mix64(one.tensor) + one.step);
            if (first == 0 && one.ret_digest != nullptr) targets.digest = trip_.as<unsigned long long>(slot.at[2]);
            GRADSIEVE_TRY(launched(launch_expand(device_matrix(one.shape), targets, trip_.as<float>(slot.at[0]),
                                                 trip_.as<float>(slot.at[1]), handle_of(stream))));
        }
        return {};
    });
}

}  // namespace gradsieve::codec::cuda

#include "codec/cuda/gpu_low_rank.hpp"

#include "codec/cuda/factor_kernels.hpp"
#include "codec/cuda/runtime.hpp"
#include "codec/cuda/vector_bytes.hpp"

#include <algorithm>
#include <cstring>

namespace gradsieve::codec::cuda {
namespace {

constexpr auto kWhat = "factors of lowrank";
constexpr ByteCount kGranularityBytes = ByteCount{1} << 16U;

cudaStream_t handle_of(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }

Status launched(cudaError_t error) { return status_of(error, "starting a kernel of lowrank"); }

}  // namespace

Status GpuLowRank::fit(ByteCount bytes) {
    if (bytes <= memory_.size()) return {};
    const ByteCount wanted = rounded_up(bytes, kGranularityBytes);
    memory_ = {};
    mirror_ = {};
    GRADSIEVE_ASSIGN(mirror_, PinnedMemory::make(wanted, kWhat));
    GRADSIEVE_ASSIGN(memory_, DeviceMemory::make(device_, wanted, kWhat));
    return {};
}

Status GpuLowRank::run(const Stream& stream, std::vector<Slot>& slots, const Launch& launch) {
    ByteCount end = 0;
    const auto place = [&end](ByteCount& ret_at, ByteCount bytes) {
        ret_at = end;
        end = aligned_to_line(end + bytes);
    };
    for (Slot& slot : slots)
        for (std::size_t number = 0; number < 2; ++number) place(slot.at[number], slot.in[number].size());
    const ByteCount out = end;
    for (Slot& slot : slots) place(slot.at[2], slot.out.size());
    GRADSIEVE_TRY(stream.make_current());
    GRADSIEVE_TRY(fit(end));
    for (const Slot& slot : slots)
        for (std::size_t number = 0; number < 2; ++number)
            if (!slot.in[number].empty())
                std::memcpy(mirror_.data() + slot.at[number], slot.in[number].data(), slot.in[number].size());
    const auto enqueue = [&]() -> Status {
        if (out > 0)
            GRADSIEVE_CUDA_TRY(
                cudaMemcpyAsync(memory_.data(), mirror_.data(), out, cudaMemcpyHostToDevice, handle_of(stream)),
                "copying factors to a GPU");
        if (end > out)
            GRADSIEVE_CUDA_TRY(cudaMemsetAsync(memory_.data() + out, 0, end - out, handle_of(stream)),
                               "clearing factors on a GPU");
        for (std::size_t number = 0; number < slots.size(); ++number) GRADSIEVE_TRY(launch(number, slots[number]));
        if (end > out)
            GRADSIEVE_CUDA_TRY(cudaMemcpyAsync(mirror_.data() + out, memory_.data() + out, end - out,
                                               cudaMemcpyDeviceToHost, handle_of(stream)),
                               "copying factors from a GPU");
        return {};
    };
    Status status = enqueue();
    if (Status waited = stream.synchronize(); status.is_ok()) status = std::move(waited);
    GRADSIEVE_TRY(std::move(status));
    for (const Slot& slot : slots)
        if (!slot.out.empty()) std::memcpy(slot.out.data(), mirror_.data() + slot.at[2], slot.out.size());
    return {};
}

Status GpuLowRank::project(const Stream& stream, std::span<const ProjectWork> work) {
    std::vector<Slot> slots;
    for (const ProjectWork& one : work)
        slots.push_back({{std::as_bytes(one.factors), {}}, std::as_writable_bytes(one.ret_left), {}});
    return run(stream, slots, [&](std::size_t number, const Slot& slot) -> Status {
        const ProjectWork& one = work[number];
        if (one.shape.elements == 0) return {};
        return launched(launch_project(device_matrix(one.shape), one.values, memory_.as<float>(slot.at[0]),
                                       memory_.as<float>(slot.at[2]), static_cast<unsigned>(multiprocessors_),
                                       handle_of(stream)));
    });
}

Status GpuLowRank::settle(const Stream& stream, std::span<const SettleWork> work) {
    std::vector<Slot> slots;
    for (const SettleWork& one : work)
        slots.push_back({{std::as_bytes(one.left), {}}, std::as_writable_bytes(one.ret_right), {}});
    return run(stream, slots, [&](std::size_t number, const Slot& slot) -> Status {
        const SettleWork& one = work[number];
        if (one.shape.elements == 0) return {};
        const DeviceMatrix matrix = device_matrix(one.shape);
        const auto* left = memory_.as<float>(slot.at[0]);
        auto* right = memory_.as<float>(slot.at[2]);
        GRADSIEVE_TRY(launched(launch_add_outer(matrix, one.residual, left, right,
                                                static_cast<unsigned>(multiprocessors_), handle_of(stream))));
        return launched(
            launch_subtract(matrix, {one.residual, one.before, one.low_pass}, left, right, handle_of(stream)));
    });
}

Status GpuLowRank::expand(const Stream& stream, std::span<const ExpandWork> work) {
    std::vector<Slot> slots;
    for (const ExpandWork& one : work) {
        const std::span digest(one.ret_digest, one.ret_digest == nullptr ? 0 : 1);
        slots.push_back({{std::as_bytes(one.left), std::as_bytes(one.right)}, std::as_writable_bytes(digest), {}});
    }
    return run(stream, slots, [&](std::size_t number, const Slot& slot) -> Status {
        const ExpandWork& one = work[number];
        if (one.shape.elements == 0) return {};
        // Also without a result there is a digest, of the first launch.
        for (std::size_t first = 0; first == 0 || first < one.results.size(); first += ExpandTargets::kMost) {
            ExpandTargets targets;
            targets.count = static_cast<std::uint32_t>(std::min(one.results.size() - first, ExpandTargets::kMost));
            for (std::uint32_t target = 0; target < targets.count; ++target) {
                targets.data[target] = one.results[first + target].data;
                targets.types[target] = one.results[first + target].type;
            }
            targets.digest_seed = mix64(mix64(one.tensor) + one.step);
            if (first == 0 && one.ret_digest != nullptr) targets.digest = memory_.as<unsigned long long>(slot.at[2]);
            GRADSIEVE_TRY(launched(launch_expand(device_matrix(one.shape), targets, memory_.as<float>(slot.at[0]),
                                                 memory_.as<float>(slot.at[1]), handle_of(stream))));
        }
        return {};
    });
}

}  // namespace gradsieve::codec::cuda

// What goes between the host and the device around a batch's kernels, over page-locked memory that both see.
#include "codec/cuda/early_start.cuh"
#include "codec/cuda/encode_kernels.hpp"

namespace gradsieve::codec::cuda {
namespace {

/// The grid's share of bytes [first, end), whole vectors.
__device__ inline void copy_bytes(const std::byte* from, std::byte* to, ByteCount first, ByteCount end) {
    const auto* source = reinterpret_cast<const uint4*>(from);
    auto* target = reinterpret_cast<uint4*>(to);
    const ByteCount end_vector = (end + sizeof(uint4) - 1) / sizeof(uint4);
    for (ByteCount at = first / sizeof(uint4) + blockIdx.x * kCodeThreads + threadIdx.x; at < end_vector;
         at += ByteCount{gridDim.x} * kCodeThreads)
        target[at] = source[at];
}

__global__ void __launch_bounds__(kCodeThreads) take_plan(const __grid_constant__ ByteCopy plan) {
    begin_kernel();
    copy_bytes(plan.from, plan.to, 0, plan.bytes);
}

/// What lists there are lies side by side: up to the cursor.
__global__ void __launch_bounds__(kCodeThreads)
    give_results(const __grid_constant__ EncodeRound round, const __grid_constant__ ByteCopy results) {
    begin_kernel();
    copy_bytes(results.from, results.to, 0, results.bytes);
    copy_bytes(round.payload, round.mirror, round.first_list_byte, min(*round.cursor, round.mirror_bytes));
}

}  // namespace

auto take_plan_kernel() noexcept -> void (*)(ByteCopy) { return &take_plan; }
auto give_results_kernel() noexcept -> void (*)(EncodeRound, ByteCopy) { return &give_results; }

}  // namespace gradsieve::codec::cuda

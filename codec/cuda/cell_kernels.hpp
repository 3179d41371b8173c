// Launchers of the kernels of sketch: what touches every element of a tensor in device memory. The same bits as
// codec/stages/sketch.hpp: each cell adds up its elements in ascending order, in one thread, and what is chosen depends
// on magnitudes of estimates alone.
#pragma once

#include "codec/cuda/result_targets.hpp"
#include "codec/low_pass.hpp"
#include "codec/stages/sketch.hpp"

#include <cuda_runtime_api.h>

namespace gradsieve::codec::cuda {

/// As SketchShape, of numbers that a GPU takes: at most 2^32 - 1 elements, and at least one.
struct DeviceSketch {
    std::uint32_t elements = 0, kept = 0, rows = 1, columns = 0;
    std::uint32_t block_log2 = 0;
    PhiloxKey key;

    [[nodiscard]] GRADSIEVE_HOST_DEVICE std::uint32_t block() const { return 1U << block_log2; }
    [[nodiscard]] GRADSIEVE_HOST_DEVICE std::uint32_t blocks() const {
        return static_cast<std::uint32_t>((std::uint64_t{elements} + block() - 1) >> block_log2);
    }
    /// Offsets of a row, in whole counters.
    [[nodiscard]] GRADSIEVE_HOST_DEVICE std::uint32_t offsets() const { return (blocks() + 3) / 4 * 4; }
    /// Cells of a row with room behind it, as SketchShape::row_room.
    [[nodiscard]] GRADSIEVE_HOST_DEVICE std::uint32_t row_room() const { return columns + block(); }
};
[[nodiscard]] DeviceSketch device_sketch(const SketchShape& shape, PhiloxKey key) noexcept;

/// Elements that a block of threads estimates at a time.
inline constexpr std::uint32_t kSketchTile = 4096;
[[nodiscard]] constexpr std::uint32_t sketch_tiles(std::uint32_t elements) noexcept {
    return static_cast<std::uint32_t>((std::uint64_t{elements} + kSketchTile - 1) / kSketchTile);
}

// cell_sums.cu

/// `ret_offsets`: rows of offsets() words.
cudaError_t launch_draw_offsets(const DeviceSketch& sketch, std::uint32_t* ret_offsets, cudaStream_t stream);
/// `ret_cells`: rows of row_room() each.
cudaError_t launch_insert(const DeviceSketch& sketch, const float* values, const std::uint32_t* offsets,
                          float* ret_cells, cudaStream_t stream);
/// finish_sketch; `ret_rows`: rows of `columns` each.
cudaError_t launch_fold(const DeviceSketch& sketch, const float* cells, float* ret_rows, cudaStream_t stream);

// cell_estimates.cu

/// What is known of the kept-th magnitude.
struct EstimateState {
    std::uint32_t prefix = 0;  ///< its first bits
    std::uint32_t wanted = 0;  ///< how many of those with these bits are among the kept
};
/// Elements of a tile above the kept-th magnitude, and equal to it; once summed, of the tiles before.
struct EstimateTally {
    std::uint32_t above = 0, equal = 0;
};
inline constexpr std::uint32_t kEstimateBins = 2048;
/// Of the first call of choose to the last; device memory.
struct EstimateScratch {
    EstimateState* state = nullptr;
    std::uint32_t* bins = nullptr;     ///< kEstimateBins
    EstimateTally* tallies = nullptr;  ///< sketch_tiles(elements)
};
/// What becomes of chosen elements: values[i] = residual[chosen[i]], and 0 in its place and in that of momentum, if
/// there is one.
struct TakeStep {
    float* residual = nullptr;  ///< null: nothing is taken
    float* momentum = nullptr;
    float* values = nullptr;
};
/// ret_chosen: the `kept` elements with the largest estimates from `rows`, the mean sketch without gaps, ascending.
/// `multiprocessors`: of the device.
cudaError_t launch_choose(const DeviceSketch& sketch, const float* rows, const EstimateScratch& scratch,
                          const TakeStep& take, std::uint32_t* ret_chosen, unsigned multiprocessors,
                          cudaStream_t stream);

// sketch_results.cu

/// r = what a low-pass keeps of it and `before`.
cudaError_t launch_low_pass(float* residual, const float* before, const LowPassFactors& factors, std::uint32_t elements,
                            cudaStream_t stream);
/// targets[chosen[i]] = values[i], and the digest of those.
cudaError_t launch_scatter(const ResultTargets& targets, const std::uint32_t* chosen, const float* values,
                           std::uint32_t count, cudaStream_t stream);

}  // namespace gradsieve::codec::cuda

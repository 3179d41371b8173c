// The products of lowrank with the matrix in device memory. M Q has a warp for some rows: its lanes are the 32 lanes of
// the CPU's sums, and it folds them as those are folded. M^T P has a thread for each column of each factor, which adds
// its rows up in order. What P Q'^T stands for has a thread for some rows of a column.
#include "codec/cuda/factor_kernels.hpp"
#include "codec/cuda/launch.hpp"
#include "codec/cuda/result_targets.cuh"
#include "codec/element.hpp"
#include "codec/low_rank_kernels.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kLanes;
/// Rows that share what a warp or a thread has of a factor.
constexpr unsigned kRowsAtOnce = 4;

__device__ inline float cut(float value, float limit) {
    return value > limit ? limit : value < -limit ? -limit : value;
}

/// Elements that the row has; 0 behind the last one.
__device__ inline std::uint32_t row_end(const DeviceMatrix& matrix, std::uint32_t row) {
    const std::uint64_t first = std::uint64_t{row} * matrix.columns;
    if (first >= matrix.elements) return 0;
    return min(matrix.columns, matrix.elements - static_cast<std::uint32_t>(first));
}

/// Steps of a warp along its rows whose elements are on their way at once.
constexpr unsigned kStepsAtOnce = 4;

/// A warp for kRows rows and kFactors factors. In place of a row or a factor that is not there it works on the last
/// one, for nobody.
template <unsigned kRows, unsigned kFactors>
__global__ void __launch_bounds__(kThreads) project(DeviceMatrix matrix, const float* __restrict__ values,
                                                    const float* __restrict__ factors, float* __restrict__ ret_left) {
    const std::uint32_t groups = (matrix.rank + kFactors - 1) / kFactors;  // of factors, in blocks one after the other
    const std::uint64_t warp = std::uint64_t{blockIdx.x / groups} * kWarps + threadIdx.x / kLanes;
    if (warp * kRows >= matrix.rows) return;
    const auto row = static_cast<std::uint32_t>(warp * kRows);
    const std::uint32_t lane = threadIdx.x % kLanes;
    const std::uint32_t factor = blockIdx.x % groups * kFactors;
    const float* cells[kRows];
    std::uint32_t ends[kRows];
    std::uint32_t whole = matrix.columns;  // that all the rows have, in whole steps
#pragma unroll
    for (unsigned r = 0; r < kRows; ++r) {
        const std::uint32_t own = min(row + r, matrix.rows - 1);
        cells[r] = values + std::uint64_t{own} * matrix.columns;
        ends[r] = row_end(matrix, own);
        whole = min(whole, ends[r]);
    }
    whole -= whole % (kLanes * kStepsAtOnce);
    const float* numbers[kFactors];
#pragma unroll
    for (unsigned k = 0; k < kFactors; ++k)
        numbers[k] = factors + std::uint64_t{min(factor + k, matrix.rank - 1)} * matrix.columns;
    float sums[kRows][kFactors] = {};
    for (std::uint32_t column = lane; column < whole; column += kLanes * kStepsAtOnce) {
        float held[kStepsAtOnce][kRows];
#pragma unroll
        for (unsigned step = 0; step < kStepsAtOnce; ++step)
#pragma unroll
            for (unsigned r = 0; r < kRows; ++r) held[step][r] = cells[r][column + step * kLanes];
#pragma unroll
        for (unsigned step = 0; step < kStepsAtOnce; ++step) {
#pragma unroll
            for (unsigned r = 0; r < kRows; ++r) held[step][r] = cut(held[step][r], kFactorLimit);
#pragma unroll
            for (unsigned k = 0; k < kFactors; ++k) {
                const float number = numbers[k][column + step * kLanes];
#pragma unroll
                for (unsigned r = 0; r < kRows; ++r) sums[r][k] = sums[r][k] + held[step][r] * number;
            }
        }
    }
    for (std::uint32_t column = whole + lane; column < matrix.columns; column += kLanes)
#pragma unroll
        for (unsigned r = 0; r < kRows; ++r) {
            if (column >= ends[r]) continue;
            const float value = cut(cells[r][column], kFactorLimit);
#pragma unroll
            for (unsigned k = 0; k < kFactors; ++k) sums[r][k] = sums[r][k] + value * numbers[k][column];
        }
#pragma unroll
    for (unsigned r = 0; r < kRows; ++r)
#pragma unroll
        for (unsigned k = 0; k < kFactors; ++k) {
            float sum = sums[r][k];
#pragma unroll
            for (unsigned half = kLanes / 2; half > 0; half /= 2) sum = sum + __shfl_down_sync(kAllLanes, sum, half);
            if (lane == 0 && row + r < matrix.rows && factor + k < matrix.rank)
                ret_left[std::uint64_t{row + r} * matrix.rank + factor + k] = sum;
        }
}

/// Elements that a block has in shared memory at a time, twice: while some are added up, the next are on their way.
constexpr unsigned kHeldElements = 4096;
constexpr unsigned kHeldPerThread = kHeldElements / kThreads;

/// This thread's elements of kHeldElements / kStrip rows from `first_row` on, in the strip's columns; zeros where there
/// is none.
template <unsigned kStrip>
__device__ inline void load_held(const DeviceMatrix& matrix, const float* __restrict__ values, std::uint64_t first_row,
                                 std::uint32_t column, float (&ret_held)[kHeldPerThread]) {
    const std::uint64_t first = (first_row + threadIdx.x / kStrip) * matrix.columns + column;
    const std::uint64_t stride = std::uint64_t{kThreads / kStrip} * matrix.columns;
#pragma unroll
    for (unsigned j = 0; j < kHeldPerThread; ++j) {
        const std::uint64_t element = first + j * stride;
        const bool is_there = column < matrix.columns && element < matrix.elements;
        const float value = values[is_there ? element : 0];
        ret_held[j] = is_there ? value : 0.0F;
    }
}

/// A block for kStrip columns and all rows; a thread for a column and every (kThreads / kStrip)-th factor, of which
/// there are kMostFactors at most.
template <unsigned kStrip, unsigned kMostFactors>
__global__ void __launch_bounds__(kThreads) add_outer(DeviceMatrix matrix, const float* __restrict__ values,
                                                      const float* __restrict__ left, float* __restrict__ ret_right) {
    constexpr unsigned kRows = kHeldElements / kStrip;
    constexpr unsigned kFactorStep = kThreads / kStrip;
    __shared__ float held[2][kHeldElements];
    const std::uint32_t in_strip = threadIdx.x % kStrip;
    const std::uint32_t column = blockIdx.x * kStrip + in_strip;
    const std::uint32_t factor = threadIdx.x / kStrip;
    float sums[kMostFactors] = {};
    float next[kHeldPerThread];
    load_held<kStrip>(matrix, values, 0, column, next);
    unsigned buffer = 0;
    for (std::uint64_t first = 0; first < matrix.rows; first += kRows, buffer ^= 1U) {
#pragma unroll
        for (unsigned j = 0; j < kHeldPerThread; ++j)
            held[buffer][threadIdx.x + j * kThreads] = cut(next[j], kFactorLimit);
        __syncthreads();
        if (first + kRows < matrix.rows) load_held<kStrip>(matrix, values, first + kRows, column, next);
        const auto rows = static_cast<std::uint32_t>(min(std::uint64_t{kRows}, matrix.rows - first));
        const float* shares = left + first * matrix.rank + factor;
        if (factor < matrix.rank) {
#pragma unroll 8
            for (std::uint32_t row = 0; row < rows; ++row) {
                const float value = held[buffer][row * kStrip + in_strip];
#pragma unroll
                for (unsigned k = 0; k < kMostFactors; ++k)
                    if (factor + k * kFactorStep < matrix.rank)
                        sums[k] = sums[k] + shares[std::uint64_t{row} * matrix.rank + k * kFactorStep] * value;
            }
        }
    }
    if (column >= matrix.columns) return;
#pragma unroll
    for (unsigned k = 0; k < kMostFactors; ++k)
        if (factor + k * kFactorStep < matrix.rank)
            ret_right[std::uint64_t{factor + k * kFactorStep} * matrix.columns + column] = sums[k];
}

/// A thread's elements: kRowsAtOnce rows, from `row` on, of a column.
struct Cells {
    std::uint32_t row = 0, column = 0;
    std::uint32_t rows = 0;  ///< that are there; 0: none
};
__device__ inline Cells own_cells(const DeviceMatrix& matrix) {
    const std::uint32_t number = blockIdx.x * kThreads + threadIdx.x;
    const std::uint64_t row = std::uint64_t{number / matrix.columns} * kRowsAtOnce;
    if (row >= matrix.rows) return {};
    Cells cells{static_cast<std::uint32_t>(row), number % matrix.columns, 0};
    for (unsigned r = 0; r < kRowsAtOnce; ++r) cells.rows += cells.column < row_end(matrix, cells.row + r) ? 1 : 0;
    return cells;
}

/// P Q'^T of them, over the factors in order from +0.
__device__ inline void stand_for(const DeviceMatrix& matrix, const float* left, const float* right, const Cells& cells,
                                 float (&ret_sums)[kRowsAtOnce]) {
    const float* shares[kRowsAtOnce];
#pragma unroll
    for (unsigned r = 0; r < kRowsAtOnce; ++r) {
        ret_sums[r] = 0;
        shares[r] = left + std::uint64_t{min(cells.row + r, matrix.rows - 1)} * matrix.rank;
    }
    for (std::uint32_t factor = 0; factor < matrix.rank; ++factor) {
        const float number = right[std::uint64_t{factor} * matrix.columns + cells.column];
#pragma unroll
        for (unsigned r = 0; r < kRowsAtOnce; ++r) ret_sums[r] = ret_sums[r] + shares[r][factor] * number;
    }
}

__global__ void __launch_bounds__(kThreads)
    subtract(DeviceMatrix matrix, SubtractStep step, const float* __restrict__ left, const float* __restrict__ right) {
    const Cells cells = own_cells(matrix);
    if (cells.rows == 0) return;
    const bool filters = step.low_pass.take > 0.0F;
    std::uint64_t elements[kRowsAtOnce];
    float rests[kRowsAtOnce];
    float before[kRowsAtOnce];
#pragma unroll
    for (unsigned r = 0; r < kRowsAtOnce; ++r) {
        elements[r] = (std::uint64_t{cells.row} + min(r, cells.rows - 1)) * matrix.columns + cells.column;
        rests[r] = step.residual[elements[r]];
        before[r] = filters ? step.before[elements[r]] : 0.0F;
    }
    float sums[kRowsAtOnce];
    stand_for(matrix, left, right, cells, sums);
#pragma unroll
    for (unsigned r = 0; r < kRowsAtOnce; ++r) {
        if (r >= cells.rows) continue;
        float rest = cut(rests[r] - sums[r], FLT_MAX);
        if (filters) rest = element::low_passed(step.low_pass.keep, before[r], step.low_pass.take, rest);
        step.residual[elements[r]] = rest;
    }
}

__global__ void __launch_bounds__(kThreads) expand(DeviceMatrix matrix, const __grid_constant__ ResultTargets targets,
                                                   const float* __restrict__ left, const float* __restrict__ right) {
    __shared__ unsigned long long parts[kWarps];
    const Cells cells = own_cells(matrix);
    unsigned long long digest = 0;
    if (cells.rows > 0) {
        float sums[kRowsAtOnce];
        stand_for(matrix, left, right, cells, sums);
#pragma unroll
        for (unsigned r = 0; r < kRowsAtOnce; ++r) {
            if (r >= cells.rows) continue;
            const std::uint64_t element = (std::uint64_t{cells.row} + r) * matrix.columns + cells.column;
            write_value(targets, element, sums[r]);
            if (targets.digest != nullptr) digest += digest_of(targets, element, sums[r]);
        }
    }
    add_digest<kThreads>(targets, digest, parts);
}

template <unsigned kRows, unsigned kFactors>
cudaError_t launch_projection(const DeviceMatrix& matrix, const float* values, const float* factors, float* ret_left,
                              cudaStream_t stream) {
    constexpr std::uint32_t kBlockRows = kRows * kWarps;
    const std::uint32_t blocks =
        (matrix.rows + kBlockRows - 1) / kBlockRows * ((matrix.rank + kFactors - 1) / kFactors);
    return launch(&project<kRows, kFactors>, {blocks, kThreads}, stream, matrix, values, factors, ret_left);
}

std::uint32_t blocks_for_cells(const DeviceMatrix& matrix) {
    const std::uint64_t threads =
        (std::uint64_t{matrix.rows} + kRowsAtOnce - 1) / kRowsAtOnce * std::uint64_t{matrix.columns};
    return static_cast<std::uint32_t>((threads + kThreads - 1) / kThreads);
}

}  // namespace

cudaError_t launch_project(const DeviceMatrix& matrix, const float* values, const float* factors, float* ret_left,
                           unsigned multiprocessors, cudaStream_t stream) {
    const bool is_small = matrix.rows < kRowsAtOnce * kWarps * multiprocessors;
    const auto pick = [&](auto one, auto some) {
        return (is_small ? one : some)(matrix, values, factors, ret_left, stream);
    };
    if (matrix.rank == 1) return pick(&launch_projection<1, 1>, &launch_projection<kRowsAtOnce, 1>);
    if (matrix.rank == 2) return pick(&launch_projection<1, 2>, &launch_projection<kRowsAtOnce, 2>);
    if (matrix.rank <= 4) return pick(&launch_projection<1, 4>, &launch_projection<kRowsAtOnce, 4>);
    return pick(&launch_projection<1, 8>, &launch_projection<kRowsAtOnce, 8>);
}

cudaError_t launch_add_outer(const DeviceMatrix& matrix, const float* values, const float* left, float* ret_right,
                             unsigned multiprocessors, cudaStream_t stream) {
    constexpr std::uint32_t kWide = 32, kNarrow = 8;
    const auto run = [&](std::uint32_t strip, auto few, auto all) {
        const bool is_few = matrix.rank <= kThreads / strip;
        return launch(is_few ? few : all, {(matrix.columns + strip - 1) / strip, kThreads}, stream, matrix, values,
                      left, ret_right);
    };
    if (matrix.columns < kWide * multiprocessors)
        return run(kNarrow, &add_outer<kNarrow, 1>, &add_outer<kNarrow, kMostRank * kNarrow / kThreads>);
    return run(kWide, &add_outer<kWide, 1>, &add_outer<kWide, kMostRank * kWide / kThreads>);
}

cudaError_t launch_subtract(const DeviceMatrix& matrix, const SubtractStep& step, const float* left, const float* right,
                            cudaStream_t stream) {
    return launch(&subtract, {blocks_for_cells(matrix), kThreads}, stream, matrix, step, left, right);
}

cudaError_t launch_expand(const DeviceMatrix& matrix, const ResultTargets& targets, const float* left,
                          const float* right, cudaStream_t stream) {
    return launch(&expand, {blocks_for_cells(matrix), kThreads}, stream, matrix, targets, left, right);
}

}  // namespace gradsieve::codec::cuda

// Cells of a sketch, each the sum of its elements in ascending order: a thread for each cell of a row. The blocks of
// elements that fall on a range of a row's cells are found from the table of all offsets, in order, and come in
// batches, for which a block of threads draws the signs of what it reads.
#include "codec/cuda/block_scan.cuh"
#include "codec/cuda/cell_kernels.hpp"
#include "codec/cuda/launch.hpp"
#include "codec/element.hpp"

#include <bit>

namespace gradsieve::codec::cuda {
namespace {

constexpr unsigned kThreads = 1024;
/// Offsets that are looked at together, four by a thread.
constexpr std::uint32_t kLookedAt = 4 * kThreads;
/// Runs that are added together; each has signs from so many counters at most, of 128 elements each.
constexpr std::uint32_t kBatch = 64;
constexpr std::uint32_t kSignElements = 128;
constexpr std::uint32_t kRunCounters = (kThreads + 2 * (kSignElements - 1)) / kSignElements;
/// Elements of a cell that are on their way at once.
constexpr std::uint32_t kAhead = 4;
static_assert(kBatch % kAhead == 0);

/// Blocks of elements that fall on the range of cells, in order.
struct RunList {
    std::uint32_t blocks[kLookedAt + kBatch];
    std::uint32_t offsets[kLookedAt + kBatch];
};
/// What of a block of elements falls on the range.
struct Run {
    std::uint32_t element;     ///< of cell 0; modulo 2^32
    std::uint32_t begin, end;  ///< cells that it falls on
    std::uint32_t first_sign;  ///< place of element 0's word in the batch's signs; modulo 2^32
};
struct Batch {
    Run runs[kBatch];
    std::uint32_t signs[kBatch * kRunCounters * 4];
};

/// Elements that the block has.
__device__ inline std::uint32_t block_elements(const DeviceSketch& sketch, std::uint32_t block) {
    return min(sketch.block(), sketch.elements - (block << sketch.block_log2));
}

__device__ inline PhiloxBlock sketch_words(const DeviceSketch& sketch, std::uint32_t counter, std::uint32_t purpose,
                                           std::uint32_t row) {
    return philox({{counter, purpose, row, 0}}, sketch.key);
}

__global__ void __launch_bounds__(256) draw_offsets(DeviceSketch sketch, std::uint32_t* __restrict__ ret_offsets) {
    const std::uint32_t counters = sketch.offsets() / 4;
    const std::uint64_t number = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (number >= std::uint64_t{counters} * sketch.rows) return;
    const auto row = static_cast<std::uint32_t>(number / counters);
    const PhiloxBlock words =
        sketch_words(sketch, static_cast<std::uint32_t>(number % counters), kSketchOffsetPurpose, row);
    uint4 offsets;
    offsets.x = static_cast<std::uint32_t>(std::uint64_t{words.words[0]} * sketch.columns >> 32U);
    offsets.y = static_cast<std::uint32_t>(std::uint64_t{words.words[1]} * sketch.columns >> 32U);
    offsets.z = static_cast<std::uint32_t>(std::uint64_t{words.words[2]} * sketch.columns >> 32U);
    offsets.w = static_cast<std::uint32_t>(std::uint64_t{words.words[3]} * sketch.columns >> 32U);
    reinterpret_cast<uint4*>(ret_offsets)[number] = offsets;
}

/// Adds those of the blocks from `first` on that fall on the range to the list.
__device__ inline void look_at(const DeviceSketch& sketch, const std::uint32_t* offsets, std::uint32_t first,
                               std::uint32_t range, ScanShared<kThreads>& shared, RunList& inout_list,
                               std::uint32_t& inout_count) {
    const std::uint32_t block = first + 4 * threadIdx.x;
    uint4 read = make_uint4(0, 0, 0, 0);
    if (block < sketch.blocks()) read = *reinterpret_cast<const uint4*>(offsets + block);
    const std::uint32_t of_blocks[4] = {read.x, read.y, read.z, read.w};
    bool falls[4];
    std::uint32_t own = 0;
#pragma unroll
    for (std::uint32_t number = 0; number < 4; ++number) {
        falls[number] = block + number < sketch.blocks() && of_blocks[number] < range + kThreads &&
                        of_blocks[number] + block_elements(sketch, block + number) > range;
        own += falls[number] ? 1 : 0;
    }
    std::uint32_t total = 0;
    std::uint32_t at = inout_count + scan_block(own, Sum{}, shared, total);
#pragma unroll
    for (std::uint32_t number = 0; number < 4; ++number) {
        if (!falls[number]) continue;
        inout_list.blocks[at] = block + number;
        inout_list.offsets[at] = of_blocks[number];
        ++at;
    }
    inout_count += total;
    __syncthreads();
}

/// Runs of the list's next `count`, kBatch at most, and their signs.
__device__ inline void make_batch(const DeviceSketch& sketch, const RunList& list, std::uint32_t first,
                                  std::uint32_t count, std::uint32_t row, std::uint32_t range, Batch& ret_batch) {
    if (threadIdx.x < kBatch) {
        Run run{0, 0, 0, 0};
        if (threadIdx.x < count) {
            const std::uint32_t block = list.blocks[first + threadIdx.x];
            const std::uint32_t offset = list.offsets[first + threadIdx.x];
            run.begin = max(range, offset);
            run.end = min(range + kThreads, offset + block_elements(sketch, block));
            run.element = (block << sketch.block_log2) - offset;
            run.first_sign = 4 * (threadIdx.x * kRunCounters - (run.element + run.begin) / kSignElements);
        }
        ret_batch.runs[threadIdx.x] = run;
    }
    for (std::uint32_t slot = threadIdx.x; slot < count * kRunCounters; slot += kThreads) {
        const std::uint32_t number = slot / kRunCounters;
        const std::uint32_t block = list.blocks[first + number];
        const std::uint32_t offset = list.offsets[first + number];
        const std::uint32_t element = (block << sketch.block_log2) - offset;
        const std::uint32_t end = min(range + kThreads, offset + block_elements(sketch, block));
        const std::uint32_t counter = (element + max(range, offset)) / kSignElements + slot % kRunCounters;
        if (counter > (element + (end - 1)) / kSignElements) continue;
        const PhiloxBlock words = sketch_words(sketch, counter, kSketchSignPurpose, row);
#pragma unroll
        for (unsigned word = 0; word < 4; ++word) ret_batch.signs[4 * slot + word] = words.words[word];
    }
    __syncthreads();
}

__device__ inline float cut_off(float value) {
    return value > kSketchLimit ? kSketchLimit : value < -kSketchLimit ? -kSketchLimit : value;
}

/// The cell's sum and its elements of the batch, in order.
__device__ inline float add_batch(const Batch& batch, const float* __restrict__ values, std::uint32_t cell,
                                  std::uint32_t count, float sum) {
    for (std::uint32_t first = 0; first < count; first += kAhead) {
        float held[kAhead];
        std::uint32_t flips[kAhead];
#pragma unroll
        for (std::uint32_t number = 0; number < kAhead; ++number) {
            const Run run = batch.runs[first + number];
            const std::uint32_t element = run.element + cell;
            held[number] = 0.0F;
            flips[number] = 0;
            if (cell < run.begin || cell >= run.end) continue;
            held[number] = values[element];
            flips[number] = batch.signs[run.first_sign + element / 32] << (31U - element % 32) & 0x80000000U;
        }
        // A sum is never -0, so that a zero of a run which has nothing for the cell changes none.
#pragma unroll
        for (std::uint32_t number = 0; number < kAhead; ++number)
            sum = sum + element::float_of(element::bits_of(cut_off(held[number])) ^ flips[number]);
    }
    return sum;
}

__global__ void __launch_bounds__(kThreads, 2)
    insert(DeviceSketch sketch, const float* __restrict__ values, const std::uint32_t* __restrict__ offsets,
           float* __restrict__ ret_cells) {
    __shared__ ScanShared<kThreads> scan;
    __shared__ RunList list;
    __shared__ Batch batch;
    const std::uint32_t ranges = (sketch.row_room() + kThreads - 1) / kThreads;
    const std::uint32_t row = blockIdx.x / ranges;
    const std::uint32_t range = blockIdx.x % ranges * kThreads;
    const std::uint32_t* of_row = offsets + std::uint64_t{row} * sketch.offsets();
    float sum = 0.0F;
    std::uint32_t count = 0;
    for (std::uint32_t first = 0; first < sketch.blocks(); first += kLookedAt) {
        look_at(sketch, of_row, first, range, scan, list, count);
        const bool is_last = sketch.blocks() - first <= kLookedAt;
        std::uint32_t done = 0;
        while (count - done >= kBatch || (is_last && done < count)) {
            const std::uint32_t batched = min(kBatch, count - done);
            make_batch(sketch, list, done, batched, row, range, batch);
            sum = add_batch(batch, values, range + threadIdx.x, batched, sum);
            done += batched;
            __syncthreads();
        }
        if (is_last) break;
        // What no batch took begins the next list. Fewer than lie before it, or it stays.
        if (done > 0 && threadIdx.x < count - done) {
            list.blocks[threadIdx.x] = list.blocks[done + threadIdx.x];
            list.offsets[threadIdx.x] = list.offsets[done + threadIdx.x];
        }
        count -= done;
        __syncthreads();
    }
    const std::uint32_t cell = range + threadIdx.x;
    if (cell < sketch.row_room()) ret_cells[std::uint64_t{row} * sketch.row_room() + cell] = sum;
}

__global__ void __launch_bounds__(256)
    fold(DeviceSketch sketch, const float* __restrict__ cells, float* __restrict__ ret_rows) {
    const std::uint64_t number = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (number >= std::uint64_t{sketch.rows} * sketch.columns) return;
    const std::uint64_t row = number / sketch.columns;
    const auto column = static_cast<std::uint32_t>(number % sketch.columns);
    const float* sums = cells + row * sketch.row_room();
    float sum = sums[column];
    if (column < sketch.block()) sum = sum + sums[sketch.columns + column];
    ret_rows[number] = sum;
}

LaunchShape shape_for(std::uint64_t threads) {
    constexpr unsigned kSmallBlock = 256;
    return {static_cast<std::uint32_t>((threads + kSmallBlock - 1) / kSmallBlock), kSmallBlock};
}

}  // namespace

DeviceSketch device_sketch(const SketchShape& shape, PhiloxKey key) noexcept {
    return {static_cast<std::uint32_t>(shape.elements),
            static_cast<std::uint32_t>(shape.kept),
            shape.rows,
            static_cast<std::uint32_t>(shape.columns),
            static_cast<std::uint32_t>(std::countr_zero(shape.block)),
            key};
}

cudaError_t launch_draw_offsets(const DeviceSketch& sketch, std::uint32_t* ret_offsets, cudaStream_t stream) {
    return launch(&draw_offsets, shape_for(std::uint64_t{sketch.offsets() / 4} * sketch.rows), stream, sketch,
                  ret_offsets);
}

cudaError_t launch_insert(const DeviceSketch& sketch, const float* values, const std::uint32_t* offsets,
                          float* ret_cells, cudaStream_t stream) {
    const std::uint32_t ranges = (sketch.row_room() + kThreads - 1) / kThreads;
    return launch(&insert, {ranges * sketch.rows, kThreads}, stream, sketch, values, offsets, ret_cells);
}

cudaError_t launch_fold(const DeviceSketch& sketch, const float* cells, float* ret_rows, cudaStream_t stream) {
    return launch(&fold, shape_for(std::uint64_t{sketch.rows} * sketch.columns), stream, sketch, cells, ret_rows);
}

}  // namespace gradsieve::codec::cuda

// Signatures of arrays in device memory, in the order of codec/signature_draw.hpp: a block for a group of rows, whose
// threads have a bucket each and go from row to row; then a block for a chunk adds up its groups.
#include "codec/cuda/signature_kernels.hpp"

#include "codec/cuda/launch.hpp"
#include "codec/cuda/tile_load.cuh"

namespace gradsieve::codec::cuda {
namespace {

/// Whose elements are on their way to a thread at a time.
constexpr unsigned kNearRows = 8;
static_assert(kSignatureGroupRows % kNearRows == 0);

struct GroupDraws {
    std::uint32_t signs[kSignatureGroupRows][kSignatureWords];
    std::uint32_t offsets[kSignatureGroupRows];
};

__device__ inline void draw_rows(const SignChunk& chunk, std::uint32_t first_row, std::uint32_t rows,
                                 GroupDraws& ret_draws) {
    for (std::uint32_t at = threadIdx.x; at < rows * kSignatureDrawsPerRow; at += kSignatureBuckets) {
        const std::uint32_t row = at / kSignatureDrawsPerRow;
        const std::uint32_t draw = at % kSignatureDrawsPerRow;
        const PhiloxBlock block = signature_draw(chunk.key, chunk.first_row + first_row + row, draw);
        if (draw + 1 == kSignatureDrawsPerRow) {
            ret_draws.offsets[row] = signature_offset(block);
            continue;
        }
#pragma unroll
        for (unsigned word = 0; word < kSignatureWordsPerDraw; ++word)
            ret_draws.signs[row][draw * kSignatureWordsPerDraw + word] = block.words[word];
    }
}

/// Values of elements `elements` of a sample; of those that do not exist (kNothing), +0.
__device__ inline void load_rows(const SampleView& sample, const std::uint32_t (&elements)[kNearRows],
                                 float (&ret_values)[kNearRows]) {
    if (sample.type == static_cast<std::uint32_t>(ElementType::kF32)) {
        const auto* values = static_cast<const float*>(sample.data);
#pragma unroll
        for (unsigned row = 0; row < kNearRows; ++row)
            ret_values[row] = elements[row] != kNothing ? load_once(values + elements[row]) : 0.0F;
        return;
    }
    const auto* halves = static_cast<const std::uint16_t*>(sample.data);
    std::uint32_t bits[kNearRows];
#pragma unroll
    for (unsigned row = 0; row < kNearRows; ++row)
        bits[row] = elements[row] != kNothing ? load_once(halves + elements[row]) : 0U;
#pragma unroll
    for (unsigned row = 0; row < kNearRows; ++row) ret_values[row] = float_of_half(bits[row], sample.type);
}

__global__ void __launch_bounds__(kSignatureBuckets)
    sign_groups(const SignChunk* __restrict__ chunks, const SignGroup* __restrict__ groups,
                double* __restrict__ ret_sums) {
    __shared__ GroupDraws draws;
    const SignGroup group = groups[blockIdx.x];
    const SignChunk chunk = chunks[group.chunk];
    const std::uint32_t first = group.group * kSignatureGroupElements;
    const std::uint32_t elements = min(kSignatureGroupElements, chunk.elements - first);
    const std::uint32_t rows = (elements + kSignatureBuckets - 1) / kSignatureBuckets;
    draw_rows(chunk, group.group * kSignatureGroupRows, rows, draws);
    __syncthreads();
    double sum = 0;
    for (std::uint32_t base = 0; base < rows; base += kNearRows) {
        std::uint32_t places[kNearRows];  // in the row
        std::uint32_t wanted[kNearRows];  // in the sample
        float mean[kNearRows] = {};
#pragma unroll
        for (unsigned near = 0; near < kNearRows; ++near) {
            const std::uint32_t row = base + near;
            places[near] = row < rows ? (threadIdx.x - draws.offsets[row]) % kSignatureBuckets : 0U;
            const std::uint32_t element = row * kSignatureBuckets + places[near];
            wanted[near] = element < elements ? chunk.first_element + first + element : kNothing;
        }
        for (std::uint32_t sample = 0; sample < chunk.sample_count; ++sample) {
            const SampleView view = chunk.samples[sample];
            float values[kNearRows];
            load_rows(view, wanted, values);
#pragma unroll
            for (unsigned near = 0; near < kNearRows; ++near) {
                const float part = view.weight * values[near];
                mean[near] = sample == 0 ? part : mean[near] + part;
            }
        }
#pragma unroll
        for (unsigned near = 0; near < kNearRows; ++near) {
            if (wanted[near] == kNothing) continue;
            const std::uint32_t sign = draws.signs[base + near][places[near] / 32] >> (places[near] % 32) & 1U;
            sum += static_cast<double>(element::float_of(element::bits_of(mean[near]) ^ (sign << 31U)));
        }
    }
    ret_sums[std::size_t{blockIdx.x} * kSignatureBuckets + threadIdx.x] = sum;
}

__global__ void __launch_bounds__(kSignatureBuckets)
    fold_groups(const SignChunk* __restrict__ chunks, const double* __restrict__ group_sums,
                double* __restrict__ ret_sums) {
    const SignChunk chunk = chunks[blockIdx.x];
    const std::uint32_t count = (chunk.elements + kSignatureGroupElements - 1) / kSignatureGroupElements;
    const double* sums = group_sums + std::size_t{chunk.first_group} * kSignatureBuckets + threadIdx.x;
    double sum = 0;
    for (std::uint32_t group = 0; group < count; ++group) sum += sums[std::size_t{group} * kSignatureBuckets];
    ret_sums[std::size_t{blockIdx.x} * kSignatureBuckets + threadIdx.x] = sum;
}

}  // namespace

cudaError_t launch_sign_groups(const SignChunk* chunks, const SignGroup* groups, std::uint32_t group_count,
                               double* ret_sums, cudaStream_t stream) {
    return launch(sign_groups, {group_count, kSignatureBuckets}, stream, chunks, groups, ret_sums);
}

cudaError_t launch_fold_groups(const SignChunk* chunks, std::uint32_t chunk_count, const double* group_sums,
                               double* ret_sums, cudaStream_t stream) {
    return launch(fold_groups, {chunk_count, kSignatureBuckets}, stream, chunks, group_sums, ret_sums);
}

}  // namespace gradsieve::codec::cuda

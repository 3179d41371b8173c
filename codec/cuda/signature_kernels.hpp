// Launchers of the kernels behind gpu_signer.hpp, and what they are told.
#pragma once

#include "codec/cuda/encode_plan.hpp"
#include "codec/signature_draw.hpp"

#include <cuda_runtime_api.h>

namespace gradsieve::codec::cuda {

/// A chunk of an array that is signed: the mean of its samples.
struct SignChunk {
    const SampleView* samples;
    std::uint64_t first_row;  ///< of the whole array
    PhiloxKey key;
    std::uint32_t sample_count;
    std::uint32_t first_element;  ///< of the range that the samples are of
    std::uint32_t elements;
    std::uint32_t first_group;  ///< of those of its pass
};
/// A group of rows; one for each block.
struct SignGroup {
    std::uint32_t chunk;  ///< of all
    std::uint32_t group;  ///< in the chunk
};

/// `ret_sums`: kSignatureBuckets of each group.
cudaError_t launch_sign_groups(const SignChunk* chunks, const SignGroup* groups, std::uint32_t group_count,
                               double* ret_sums, cudaStream_t stream);
/// `ret_sums`: kSignatureBuckets of each chunk.
cudaError_t launch_fold_groups(const SignChunk* chunks, std::uint32_t chunk_count, const double* group_sums,
                               double* ret_sums, cudaStream_t stream);

}  // namespace gradsieve::codec::cuda

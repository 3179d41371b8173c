// What the section scope runs: pipelines, the tensors that are selected together, kinds of data and types. Plain
// values.
#pragma once

#include "codec/cuda/gpu_encoder.hpp"
#include "tests/codec/encoder_harness.hpp"

#include <vector>

namespace gradsieve::gpu_check {

struct ScopeTensor {
    ElementCount elements = 0;
    codec::DataKind kind = codec::DataKind::kGaussian;
};
struct ScopeCase {
    const char* text;
    std::vector<ScopeTensor> tensors;
    std::vector<codec::cuda::ElementType> samples = {codec::cuda::ElementType::kF32};
    bool has_moments = false;
    std::size_t offset_elements = 0;  ///< of every array from a vector's boundary
    std::size_t bad_step = 0;         ///< the second tensor's first sample has a NaN there; 0: never
};

/// Those that an emulated card gets through in seconds, or all.
[[nodiscard]] std::vector<ScopeCase> scope_cases(bool is_small);
/// Of tensors that two devices share.
[[nodiscard]] std::vector<ScopeCase> shared_scope_cases(bool is_small);

}  // namespace gradsieve::gpu_check

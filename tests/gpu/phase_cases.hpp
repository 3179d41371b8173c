// What the sections low-rank and sketch run: pipelines, sizes, kinds of data and types. Plain values.
#pragma once

#include "codec/cuda/gpu_encoder.hpp"
#include "tests/codec/encoder_harness.hpp"

#include <vector>

namespace gradsieve::gpu_check {

struct PhaseCase {
    const char* text;
    ElementCount elements;
    std::vector<codec::cuda::ElementType> samples = {codec::cuda::ElementType::kF32};
    codec::DataKind kind = codec::DataKind::kGaussian;
    std::size_t results = 3;    ///< types in turn
    std::size_t bad_step = 99;  ///< the first sample has a NaN there; only the other node sends
};

/// Those that an emulated card gets through in seconds, or all.
[[nodiscard]] std::vector<PhaseCase> low_rank_cases(bool is_small);
[[nodiscard]] std::vector<PhaseCase> sketch_cases(bool is_small);

}  // namespace gradsieve::gpu_check

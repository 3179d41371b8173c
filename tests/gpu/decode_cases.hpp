// The cases that the decoder's equality sections share.
#pragma once

#include "decode_harness.hpp"
#include "tests/codec/encoder_harness.hpp"

namespace gradsieve::gpu_check {

inline constexpr std::size_t kDecodeSteps = 4;

/// Every pipeline with every index coder that it can have.
[[nodiscard]] std::vector<codec::NamedPipeline> pipelines_with_coders();
/// kDecodeSteps steps, of which some leave chunks, nodes or everything out. Every node encodes other samples of the
/// pool, with a factor of its own; `place` chooses what is left out. `pool`: 10,000 numbers more than `elements`.
[[nodiscard]] DecodeCase make_case(const codec::NamedPipeline& named, ElementCount elements, std::size_t nodes,
                                   std::size_t place, const std::vector<float>& pool);

}  // namespace gradsieve::gpu_check

// Natural compression on the CPU: the step that the kernels take. Plain values; any thread.
#pragma once

#include "codec/natural_step.hpp"
#include "codec/pipeline.hpp"

namespace gradsieve::codec {

/// `first_element`: number in the tensor of what the kernel counts from.
[[nodiscard]] NaturalStep natural_step(const Quantizer& quantizer, const RandomStream& random,
                                       std::uint64_t first_element) noexcept;

}  // namespace gradsieve::codec

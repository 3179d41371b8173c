// What a tensor with a whole codec is sent by, once its shape is known. Any thread; plain values.
#pragma once

#include "codec/pipeline.hpp"

#include <cstdint>
#include <span>

namespace gradsieve::codec {

/// `all | f32` with the same stages in front, as far as they mean anything without a residual.
[[nodiscard]] Pipeline sent_as_it_is(const Pipeline& pipeline);

/// settle_low_rank or settle_sketch. Pipelines of one phase are returned as they are. Same result on every node.
[[nodiscard]] Pipeline settle_whole(const Pipeline& pipeline, std::span<const std::uint64_t> shape);

}  // namespace gradsieve::codec

// What a node may send in place of a pipeline's payloads, without telling anybody: records describe themselves, and
// every element in 16 or 32 bits costs next to nothing to code. What waits in the residual goes with it, so a tensor
// may change between the two from step to step. Any thread; plain values.
#pragma once

#include "codec/pipeline.hpp"

#include <string_view>

namespace gradsieve::codec {

/// Why the pipeline's steps cannot be sent plain: it keeps more than a residual, or other nodes would not take them, or
/// they are plain already. Empty: they can.
[[nodiscard]] std::string_view plain_refusal(const Pipeline& written) noexcept;

/// `all | bf16` where the pipeline keeps a residual, whose content is sent with the next step and then is what bf16
/// rounds away; `all | f32` where it keeps nothing. Of pipelines that have no refusal.
[[nodiscard]] Pipeline plain_pipeline(const Pipeline& written);

/// "bf16" or "f32": what its elements go as.
[[nodiscard]] std::string_view plain_name(const Pipeline& written);
/// Bits of an element.
[[nodiscard]] unsigned plain_bits(const Pipeline& written);

}  // namespace gradsieve::codec

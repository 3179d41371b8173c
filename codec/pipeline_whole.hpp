// The whole codecs of a pipeline as text: what stands in place of selector, quantizer and index coder. Included by the
// parser's .cpp files only. Any thread; plain values.
#pragma once

#include "codec/pipeline.hpp"
#include "codec/pipeline_text.hpp"

#include <span>
#include <string>
#include <string_view>

namespace gradsieve::codec {

[[nodiscard]] std::span<const std::string_view> whole_names() noexcept;
[[nodiscard]] bool is_whole(std::string_view name) noexcept;
/// `stages`: all that is left of the text, a whole codec first; it has to be the only one. Errors: kInvalidArgument.
[[nodiscard]] Status read_whole_codec(std::span<const StageText> stages, Whole& ret_whole);
/// Every parameter written out. Nodes must agree on all of them, so none is a knob.
[[nodiscard]] std::string whole_text(const Whole& whole);

}  // namespace gradsieve::codec

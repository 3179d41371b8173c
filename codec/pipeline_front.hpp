// The text of the stages in front of the selector, for codec/pipeline.cpp: what they are called, how their arguments
// are read and written, and which pipelines they may stand before. Any thread; plain values.
#pragma once

#include "codec/pipeline.hpp"
#include "codec/pipeline_text.hpp"

namespace gradsieve::codec {

[[nodiscard]] std::span<const std::string_view> front_names() noexcept;
[[nodiscard]] bool is_front(std::string_view name) noexcept;
/// Which of those names it is: stages stand in their order.
[[nodiscard]] std::size_t front_position(std::string_view name) noexcept;
/// `text` has one of those names; what other stages said stays. Errors: kInvalidArgument.
[[nodiscard]] Status read_front(const StageText& text, Front& inout_front);
/// The stages, and the `|` behind each; empty without one, and for a stage that changes nothing. Every parameter
/// written out.
[[nodiscard]] std::string front_text(const Front& front);
/// Refuses what would not mean what it says. Errors: kInvalidArgument.
[[nodiscard]] Status check_front(const Pipeline& pipeline);

}  // namespace gradsieve::codec

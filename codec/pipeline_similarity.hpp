// The text of the stage similarity, for codec/pipeline.cpp: how its arguments are read and written, and before which
// pipelines it may skip. Any thread; plain values.
#pragma once

#include "codec/pipeline.hpp"
#include "codec/pipeline_text.hpp"

namespace gradsieve::codec {

inline constexpr std::string_view kSimilarityName = "similarity";

/// `text` has that name. Errors: kInvalidArgument.
[[nodiscard]] Status read_similarity(const StageText& text, Pipeline& inout_pipeline);
/// The stage and the `|` behind it; empty without one, and, knobs blanked, for one that only measures.
[[nodiscard]] std::string similarity_text(const Pipeline& pipeline, Knobs knobs);
/// Refuses to skip where the same payload again would be no answer, or what it leaves over would be kept nowhere.
/// Errors: kInvalidArgument.
[[nodiscard]] Status check_reuse(const Pipeline& pipeline);

}  // namespace gradsieve::codec

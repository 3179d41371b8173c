// The list of stages, for the parser and for whoever asks what a stage is: one row each in stage_list.cpp, those of
// quantizers in quantizer_list.hpp. Any thread; constants.
#pragma once

#include "codec/stages/stage.hpp"

#include <span>

namespace gradsieve::codec {

/// In the order in which they may stand.
[[nodiscard]] std::span<const FrontStage* const> front_stages() noexcept;
/// In the order of their enumerators.
[[nodiscard]] std::span<const SelectorStage* const> selector_stages() noexcept;
[[nodiscard]] std::span<const QuantizerStage* const> quantizer_stages() noexcept;
[[nodiscard]] std::span<const WholeStage* const> whole_stages() noexcept;
/// In the order of their enumerators.
[[nodiscard]] std::span<const IndexCoderStage* const> index_coder_stages() noexcept;
[[nodiscard]] const StageRow& entropy_row() noexcept;

/// The stage of that name; null: there is none.
template <typename Stage>
[[nodiscard]] const Stage* find_stage(std::span<const Stage* const> stages, std::string_view name) noexcept {
    for (const Stage* stage : stages)
        if (stage->row.name == name) return stage;
    return nullptr;
}

[[nodiscard]] const SelectorStage& stage_of(const Selector& selector) noexcept;
/// The one that names it.
[[nodiscard]] const QuantizerStage& stage_of(const Quantizer& quantizer) noexcept;
/// Of a pipeline with phases.
[[nodiscard]] const WholeStage& stage_of(const Whole& whole) noexcept;

[[nodiscard]] inline std::string_view name_of(const Selector& selector) noexcept { return stage_of(selector).row.name; }
[[nodiscard]] inline std::string_view name_of(const Quantizer& quantizer) noexcept {
    return stage_of(quantizer).row.name;
}
[[nodiscard]] inline std::string_view name_of(const Whole& whole) noexcept { return stage_of(whole).row.name; }
[[nodiscard]] std::string_view name_of(IndexCoderKind index_coder) noexcept;

[[nodiscard]] inline Selection selection_of(const Selector& selector) noexcept { return stage_of(selector).selection; }
/// What is sent has magnitudes above its tau.
[[nodiscard]] inline bool has_tau(const Selector& selector) noexcept { return stage_of(selector).has_tau; }

}  // namespace gradsieve::codec

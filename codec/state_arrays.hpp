// Which arrays a pipeline keeps from step to step, as a list: whoever lays out, saves or moves state goes by it and
// knows no array by name. Names are part of kept states and snapshots (docs/state-format.md). Any thread; plain values.
#pragma once

#include "codec/encoder.hpp"

#include <span>
#include <string_view>

namespace gradsieve::codec {

/// Of the array that tells states of one step apart (delta).
inline constexpr std::string_view kEpochName = "epoch";

struct StateArray {
    std::string_view name;
    float* StateView::*values = nullptr;
    bool (*is_kept)(const Pipeline& pipeline) noexcept = nullptr;
    /// Floats that it has for a tensor of `elements`: as many, if null.
    ElementCount (*size)(const Pipeline& pipeline, ElementCount elements) noexcept = nullptr;
    bool is_of_encoding = true;  ///< what encoding reads and writes; others belong to whoever decodes
};
[[nodiscard]] inline ElementCount size_of(const StateArray& array, const Pipeline& pipeline,
                                          ElementCount elements) noexcept {
    return array.size == nullptr ? elements : array.size(pipeline, elements);
}

/// Every array there is, in the order in which they lie.
[[nodiscard]] std::span<const StateArray> state_arrays() noexcept;
/// The array of that name; null if there is none.
[[nodiscard]] const StateArray* find_state_array(std::string_view name) noexcept;
/// How many of them the pipeline keeps.
[[nodiscard]] unsigned kept_state_arrays(const Pipeline& pipeline) noexcept;
/// What they take of memory, both generations.
[[nodiscard]] ByteCount kept_state_bytes(const Pipeline& pipeline, ElementCount elements) noexcept;
/// The same arrays from element `first` on; of those that have a float for each element.
[[nodiscard]] StateView state_from(const StateView& whole, ElementCount first) noexcept;

}  // namespace gradsieve::codec

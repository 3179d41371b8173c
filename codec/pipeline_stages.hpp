// What the parser of pipelines, its selectors and the stages in front share. Included by their .cpp files only. Any
// thread; plain values.
#pragma once

#include "codec/pipeline.hpp"
#include "codec/pipeline_text.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gradsieve::codec {

inline constexpr std::array<std::string_view, 3> kFeedbackNames = {"scaled", "unscaled", "none"};

inline constexpr double kLargeNumber = 1e30;
/// Thresholds and quanta are fp32 numbers on the wire, and normal ones.
inline constexpr NumberRange kQuantum = {1e-30, kLargeNumber, false, "[1e-30, 1e30]"};

[[nodiscard]] constexpr bool has_tau(const Selector& selector) noexcept {
    return selector.kind == SelectorKind::kVarianceHybrid || selector.kind == SelectorKind::kThreshold;
}

/// Where a name stands among others.
[[nodiscard]] inline std::optional<std::size_t> position_of(std::span<const std::string_view> names,
                                                            std::string_view name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return std::nullopt;
    return static_cast<std::size_t>(found - names.begin());
}

/// A whole number, which also `finish`es the stage. Errors: kInvalidArgument.
[[nodiscard]] Status read_whole(ArgumentReader& arguments, double number, std::string_view what,
                                const NumberRange& range, int& ret_number);
/// A number, or `*` in its place.
[[nodiscard]] std::string knob_text(double value, Knobs knobs);

/// In the order of their enumerators.
[[nodiscard]] std::span<const std::string_view> selector_names() noexcept;
[[nodiscard]] std::string_view name_of(const Selector& selector) noexcept;
/// Errors: kInvalidArgument.
[[nodiscard]] Status read_selector(const StageText& text, Selector& ret_selector);
/// Every parameter written out.
[[nodiscard]] std::string selector_text(const Selector& selector, Knobs knobs);
/// Refuses what a selector cannot have behind it whose positions follow from a key. Errors: kInvalidArgument.
[[nodiscard]] Status check_keyed(const Pipeline& pipeline, std::string_view quantizer_name,
                                 std::string_view coder_name);

[[nodiscard]] std::span<const std::string_view> quantizer_names() noexcept;
[[nodiscard]] std::string_view name_of(const Quantizer& quantizer) noexcept;
/// Errors: kInvalidArgument.
[[nodiscard]] Status read_quantizer(const StageText& text, const Selector& selector, Quantizer& ret_quantizer);
/// Every parameter written out.
[[nodiscard]] std::string quantizer_text(const Pipeline& pipeline, Knobs knobs);
/// Refuses what has no codes before the entropy stage. Errors: kInvalidArgument.
[[nodiscard]] Status check_entropy(const Pipeline& pipeline);

}  // namespace gradsieve::codec

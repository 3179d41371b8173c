// What the texts of several stages share: words, ranges, and numbers written out. Included by stages' .cpp files only.
// Any thread; plain values.
#pragma once

#include "codec/stages/stage.hpp"

#include <array>

namespace gradsieve::codec {

/// Cited by several.
inline constexpr std::string_view kTsuzuku =
    "Tsuzuku, Imachi, Akiba 2018, Variance-based Gradient Compression, arXiv:1802.06058";

/// In the order of Feedback.
inline constexpr std::array<std::string_view, 3> kFeedbackNames = {"scaled", "unscaled", "none"};
/// Of a rounding: at random, or to the nearer number.
inline constexpr std::array<std::string_view, 2> kRoundingNames = {"unbiased", "biased"};
/// In the order of Norm.
inline constexpr std::array<std::string_view, 2> kNormNames = {"max", "l2"};

inline constexpr double kLargeNumber = 1e30;
/// Thresholds and quanta are fp32 numbers on the wire, and normal ones.
inline constexpr NumberRange kQuantum = {1e-30, kLargeNumber, false, "[1e-30, 1e30]"};
inline constexpr NumberRange kNotNegative = {0, kLargeNumber, false, "[0, 1e30]"};
inline constexpr NumberRange kFraction = {0, 1, true, "(0, 1]"};
/// Random words have 32 bits.
inline constexpr NumberRange kProbability = {0x1p-32, 1, false, "[2^-32, 1]"};
inline constexpr NumberRange kCodeBits = {2, 8, false, "a whole number in [2, 8]"};
inline constexpr NumberRange kLevels = {1, 127, false, "a whole number in [1, 127]"};
inline constexpr NumberRange kBase = {1.1, 16, false, "[1.1, 16]"};

/// A whole number, which also `finish`es the stage. Errors: kInvalidArgument.
[[nodiscard]] Status read_whole(ArgumentReader& arguments, double number, std::string_view what,
                                const NumberRange& range, int& ret_number);
/// The argument `block` of a selector: a power of two. Finishes the stage. Errors: kInvalidArgument.
[[nodiscard]] Status read_block(ArgumentReader& arguments, std::string_view stage, Selector& ret_selector);
/// Where what a random selector leaves out goes. Unscaled, values over their probability would be a contraction only
/// where more than half is sent, and there less of one than those that are sent as they are. Finishes the stage.
[[nodiscard]] Status read_selector_feedback(ArgumentReader& arguments, Selector& ret_selector);
/// Where the error of an unbiased quantizer goes: dropped after a selector that drops errors, else kept.
[[nodiscard]] Feedback read_feedback(ArgumentReader& arguments, const Selector& selector);
/// The same of a rounding that may be biased, whose errors are kept. Errors: kInvalidArgument.
[[nodiscard]] Status read_feedback_of_mode(std::string_view stage, ArgumentReader& arguments, const Selector& selector,
                                           Quantizer& ret_quantizer);

/// Of selectors by a test: variance rules settle near one in a hundred (codec tests, send-rate oracles), a threshold is
/// chosen to.
[[nodiscard]] double share_of_tests(const Selector& selector) noexcept;

/// A number, or `*` in its place.
[[nodiscard]] std::string knob_text(double value, Knobs knobs);
/// The shortest text that reads back as the same fp32 number.
[[nodiscard]] std::string float_text(double value);
/// "feedback=scaled".
[[nodiscard]] std::string feedback_text(Feedback feedback);
/// "mode=unbiased, " and "feedback=scaled"; "mode=biased" alone.
[[nodiscard]] std::string mode_text(const Quantizer& quantizer, std::string_view between);

/// What `randk` and others with a key may not have in front and behind. Errors: kInvalidArgument.
[[nodiscard]] Status check_keyed(const Pipeline& pipeline);

}  // namespace gradsieve::codec

#include "codec/stages/stage_text.hpp"

#include "codec/stages/quantizer_list.hpp"
#include "codec/stages/stage_list.hpp"

#include <bit>
#include <charconv>

namespace gradsieve::codec {
namespace {

constexpr NumberRange kBlock = {64, kTileElements, false, "a power of two in [64, 4096]"};
/// Of a random selector, which has no use for unscaled.
constexpr std::array<std::string_view, 2> kSelectorFeedbackNames = {"scaled", "none"};

}  // namespace

Status read_whole(ArgumentReader& arguments, double number, std::string_view what, const NumberRange& range,
                  int& ret_number) {
    GRADSIEVE_TRY(arguments.finish());
    ret_number = static_cast<int>(number);
    if (static_cast<double>(ret_number) == number) return {};
    return bad_text(what, number_text(number), range.text, "write a number in that range");
}

Status read_block(ArgumentReader& arguments, std::string_view stage, Selector& ret_selector) {
    const double block = arguments.number("block", kTileElements, kBlock);
    GRADSIEVE_TRY(arguments.finish());
    ret_selector.block = static_cast<int>(block);
    if (ret_selector.block == block && std::has_single_bit(static_cast<unsigned>(ret_selector.block))) return {};
    return bad_text("codec stage " + std::string(stage) + ": block", number_text(block), kBlock.text,
                    "write one of those");
}

Status read_selector_feedback(ArgumentReader& arguments, Selector& ret_selector) {
    ret_selector.feedback =
        arguments.word("feedback", 0, kSelectorFeedbackNames) == 1 ? Feedback::kNone : Feedback::kScaled;
    return arguments.finish();
}

Feedback read_feedback(ArgumentReader& arguments, const Selector& selector) {
    const auto default_feedback = drops_errors(selector) ? Feedback::kNone : Feedback::kScaled;
    return static_cast<Feedback>(
        arguments.word("feedback", static_cast<std::size_t>(default_feedback), kFeedbackNames));
}

Status read_feedback_of_mode(std::string_view stage, ArgumentReader& arguments, const Selector& selector,
                             Quantizer& ret_quantizer) {
    if (!ret_quantizer.is_biased)
        ret_quantizer.feedback = read_feedback(arguments, selector);
    else if (const auto feedback = arguments.take("feedback"))
        return bad_text("codec stage " + std::string(stage) + ": feedback", *feedback,
                        "none of its own with mode=biased", "leave it out: a biased rounding's errors are kept");
    return {};
}

double share_of_tests(const Selector& /*selector*/) noexcept { return 0.01; }

std::string knob_text(double value, Knobs knobs) { return knobs == Knobs::kBlank ? "*" : number_text(value); }

std::string float_text(double value) {
    std::array<char, 40> buffer;
    const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), static_cast<float>(value));
    GRADSIEVE_CHECK(error == std::errc());
    return {buffer.data(), end};
}

std::string feedback_text(Feedback feedback) {
    return "feedback=" + std::string(kFeedbackNames[static_cast<std::size_t>(feedback)]);
}

std::string mode_text(const Quantizer& quantizer, std::string_view between) {
    std::string text = "mode=";
    text.append(kRoundingNames[quantizer.is_biased ? 1 : 0]).append(between);
    if (!quantizer.is_biased) text += ", " + feedback_text(quantizer.feedback);
    return text;
}

Status check_keyed(const Pipeline& pipeline) {
    const Selector& selector = pipeline.selector;
    const Quantizer& quantizer = pipeline.quantizer;
    const std::string name(name_of(selector));
    if (!facts_of(quantizer.kind).codes_zero)
        return bad_text("quantizer after " + name, name_of(quantizer), "one with a code for zero",
                        "its positions follow from a key, so none of them can be left out: write f32, f16, bf16, "
                        "sign(scale=mean), natural or dither, for example");
    if (pipeline.index_coder != IndexCoderKind::kAuto)
        return bad_text("index coder after " + name, name_of(pipeline.index_coder), "auto",
                        "a key is sent in place of indices: leave the index coder out");
    const bool is_unbiased = facts_of(quantizer.kind).is_exact || is_random(quantizer);
    if (selector.feedback == Feedback::kNone && !is_unbiased)
        return bad_text("quantizer after " + name + "(feedback=none)", name_of(quantizer),
                        "f32 or one that rounds at random without bias",
                        "errors of this one have to be kept: leave feedback=none out");
    return {};
}

}  // namespace gradsieve::codec

#include "codec/pipeline.hpp"

#include "codec/stages/entropy.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/quantizer_list.hpp"
#include "codec/stages/stage_list.hpp"
#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec {
namespace {

constexpr std::array<std::string_view, 2> kCombineNames = {"gather", "majority"};
/// Of those that are no front and no whole codec, in the order in which they stand.
enum Role : std::uint8_t { kSelectorRole, kQuantizerRole, kIndexCoderRole, kEntropyRole };
constexpr std::array<std::string_view, 4> kRoleNames = {"selector", "quantizer", "index coder", "entropy coder"};

std::optional<Role> role_of(std::string_view name) {
    if (find_stage(selector_stages(), name) != nullptr) return kSelectorRole;
    if (find_stage(quantizer_stages(), name) != nullptr) return kQuantizerRole;
    if (find_stage(index_coder_stages(), name) != nullptr) return kIndexCoderRole;
    if (entropy_row().name == name) return kEntropyRole;
    return std::nullopt;
}

template <typename Stage>
void add_names(std::span<const Stage* const> stages, std::vector<std::string_view>& inout_names) {
    for (const Stage* stage : stages) inout_names.push_back(stage->row.name);
}

Status unknown_stage(std::string_view name, std::size_t first_role) {
    std::vector<std::string_view> candidates;
    if (first_role == kSelectorRole) {
        add_names(front_stages(), candidates);
        add_names(whole_stages(), candidates);
        add_names(selector_stages(), candidates);
    }
    if (first_role == kQuantizerRole) add_names(quantizer_stages(), candidates);
    if (first_role == kQuantizerRole || first_role == kIndexCoderRole) add_names(index_coder_stages(), candidates);
    if (first_role >= kQuantizerRole) candidates.push_back(entropy_row().name);
    std::string allowed;
    for (const auto candidate : candidates) allowed.append(allowed.empty() ? "" : ", ").append(candidate);
    return bad_text("codec stage", name, allowed, "did you mean " + std::string(nearest_name(name, candidates)) + "?");
}

std::string front_order() {
    std::string order;
    for (const FrontStage* front : front_stages()) order.append(order.empty() ? "" : ", ").append(front->row.name);
    return order;
}

/// Stages in front, off the beginning of `inout_stages`.
Status read_fronts(std::string_view text, std::span<const StageText>& inout_stages, Pipeline& inout_pipeline) {
    for (const FrontStage* front : front_stages()) {
        if (inout_stages.front().name != front->row.name) continue;
        ArgumentReader arguments(inout_stages.front());
        GRADSIEVE_TRY(front->read(arguments, inout_pipeline));
        inout_stages = inout_stages.subspan(1);
        if (inout_stages.empty())
            return bad_text("codec", text, "a selector behind " + std::string(front->row.name),
                            "write e.g. " + std::string(front->row.name) + " | topk(0.001) | bf16, or | all | bf16");
    }
    return {};
}

/// `stages`: all that is left of the text, a whole codec first; it has to be the only one.
Status read_whole_codec(const WholeStage& stage, std::span<const StageText> stages, Whole& ret_whole) {
    if (stages.size() > 1)
        return bad_text("codec stage behind " + std::string(stage.row.name), stages[1].name, "none",
                        "it stands in place of selector, quantizer and index coder: remove the stage");
    ArgumentReader arguments(stages.front());
    ret_whole.kind = stage.kind;
    return stage.read(arguments, ret_whole);
}

Status read_stage(Role role, const StageText& text, Pipeline& inout_pipeline) {
    ArgumentReader arguments(text);
    switch (role) {
        case kSelectorRole: {
            const SelectorStage& stage = *find_stage(selector_stages(), text.name);
            inout_pipeline.selector.kind = stage.kind;
            return stage.read != nullptr ? stage.read(arguments, inout_pipeline.selector) : arguments.finish();
        }
        case kQuantizerRole: {
            const QuantizerStage& stage = *find_stage(quantizer_stages(), text.name);
            inout_pipeline.quantizer.kind = stage.kind;
            return stage.read != nullptr ? stage.read(arguments, inout_pipeline.selector, inout_pipeline.quantizer)
                                         : arguments.finish();
        }
        case kIndexCoderRole: inout_pipeline.index_coder = find_stage(index_coder_stages(), text.name)->kind; break;
        case kEntropyRole: inout_pipeline.has_entropy = true; break;
    }
    return arguments.finish();
}

/// Where errors of a random rounding go has to go with what the selector does with its own.
Status check_feedback(const Pipeline& pipeline) {
    const Selector& selector = pipeline.selector;
    const Quantizer& quantizer = pipeline.quantizer;
    if (!is_random(quantizer)) return {};
    const bool has_own_residual = !sends_all(selector) && !drops_errors(selector);
    const std::string feedback_of_stage = "codec stage " + std::string(name_of(quantizer)) + ": feedback";
    const bool is_dropped = quantizer.feedback == Feedback::kNone;
    if (has_own_residual && is_dropped)
        return bad_text(feedback_of_stage, "none",
                        std::string(facts_of(quantizer.kind).has_bound ? "scaled or unscaled" : "unscaled") +
                            " after a selector that keeps a residual",
                        "leave it out, or select with all");
    if (selector.is_faithful && !is_dropped)
        return bad_text(feedback_of_stage, kFeedbackNames[static_cast<std::size_t>(quantizer.feedback)],
                        "none after mode=faithful, which drops errors", "leave it out, or write mode=conserving");
    if (is_keyed(selector) && drops_errors(selector) && !is_dropped)
        return bad_text(feedback_of_stage, kFeedbackNames[static_cast<std::size_t>(quantizer.feedback)],
                        "none after a selector with feedback=none", "leave it out, or give the selector feedback");
    return {};
}

/// Refuses what would not mean what it says. The stages in front are asked from the last one on, nearest to what they
/// stand before.
Status check_fronts(const Pipeline& pipeline) {
    const auto fronts = front_stages();
    for (auto front = fronts.rbegin(); front != fronts.rend(); ++front) GRADSIEVE_TRY((*front)->check(pipeline));
    return {};
}
Status check_combination(const Pipeline& pipeline) {
    const SelectorStage& selector = stage_of(pipeline.selector);
    const QuantizerStage& quantizer = stage_of(pipeline.quantizer);
    GRADSIEVE_TRY(check_fronts(pipeline));
    GRADSIEVE_TRY(stages::Entropy::check(pipeline));
    if (quantizer.check != nullptr) GRADSIEVE_TRY(quantizer.check(pipeline));
    GRADSIEVE_TRY(check_feedback(pipeline));
    if (selector.check != nullptr) GRADSIEVE_TRY(selector.check(pipeline));
    const bool has_lists = !sends_all(pipeline.selector) || facts_of(pipeline.quantizer.kind).has_exponents;
    if (!has_lists && pipeline.index_coder != IndexCoderKind::kAuto)
        return bad_text("index coder after all", name_of(pipeline.index_coder), "auto",
                        "every element is sent, so there are no indices: leave the index coder out");
    return {};
}

std::string with_arguments(std::string_view name, const std::string& arguments) {
    std::string text(name);
    if (!arguments.empty()) text.append("(").append(arguments).append(")");
    return text;
}

}  // namespace

Result<Pipeline> parse_pipeline(std::string_view text) {
    GRADSIEVE_ASSIGN(const std::vector<StageText> all_stages, split_pipeline(text));
    std::span<const StageText> stages = all_stages;
    Pipeline pipeline;
    GRADSIEVE_TRY(read_fronts(text, stages, pipeline));
    if (const WholeStage* whole = find_stage(whole_stages(), stages.front().name)) {
        GRADSIEVE_TRY(read_whole_codec(*whole, stages, pipeline.whole));
        GRADSIEVE_TRY(check_fronts(pipeline));
        return pipeline;
    }
    std::size_t next_role = 0;
    bool has_quantizer = false;
    for (const StageText& stage : stages) {
        if (find_stage(whole_stages(), stage.name) != nullptr)
            return bad_text("codec stage", stage.name, "in place of selector, quantizer and index coder",
                            "remove it, or the other stages");
        if (find_stage(front_stages(), stage.name) != nullptr)
            return bad_text("codec stage", stage.name, "once, before the selector, in the order " + front_order(),
                            "move or remove it");
        const auto role = role_of(stage.name);
        if (!role && next_role <= kEntropyRole) return unknown_stage(stage.name, next_role);
        if (!role || *role < next_role || (next_role == kSelectorRole && *role != kSelectorRole))
            return bad_text(
                "codec stage", stage.name, "selector | quantizer | index coder | entropy, each once, in this order",
                role ? "its role is " + std::string(kRoleNames[*role]) + ": move or remove it" : "remove it");
        GRADSIEVE_TRY(read_stage(*role, stage, pipeline));
        has_quantizer = has_quantizer || *role == kQuantizerRole;
        next_role = std::size_t{*role} + 1;
    }
    if (const auto as_published = stage_of(pipeline.selector).default_quantizer; as_published && !has_quantizer)
        pipeline.quantizer = as_published(pipeline.selector);
    GRADSIEVE_TRY(check_combination(pipeline));
    return pipeline;
}

std::string canonical_text(const Pipeline& pipeline, Knobs knobs) {
    std::string text;
    for (const FrontStage* front : front_stages())
        if (const std::string stage = front->text(pipeline, knobs); !stage.empty()) text += stage + " | ";
    if (has_phases(pipeline))
        return text + with_arguments(name_of(pipeline.whole), stage_of(pipeline.whole).arguments(pipeline.whole));
    const SelectorStage& selector = stage_of(pipeline.selector);
    const QuantizerStage& quantizer = stage_of(pipeline.quantizer);
    text += with_arguments(selector.row.name,
                           selector.arguments != nullptr ? selector.arguments(pipeline.selector, knobs) : "");
    text += " | " + with_arguments(quantizer.row.name,
                                   quantizer.arguments != nullptr ? quantizer.arguments(pipeline, knobs) : "");
    text.append(" | ").append(name_of(pipeline.index_coder));
    return text + (pipeline.has_entropy ? " | entropy" : "");
}

bool has_residual(const Pipeline& pipeline) noexcept {
    if (has_phases(pipeline)) return true;
    if (is_keyed(pipeline.selector)) return !drops_errors(pipeline.selector);
    if (!sends_all(pipeline.selector)) return true;
    const Quantizer& quantizer = pipeline.quantizer;
    const QuantizerFacts& facts = facts_of(quantizer.kind);
    const bool drops_rounding =
        facts.is_vote || has_drive_scale(quantizer) || (is_random(quantizer) && quantizer.feedback == Feedback::kNone);
    return !facts.is_exact && !drops_rounding;
}

bool has_variance(const Pipeline& pipeline) noexcept {
    return stage_of(pipeline.selector).tests_variance || pipeline.selector.gate > 0;
}

bool is_random(const Quantizer& quantizer) noexcept {
    return facts_of(quantizer.kind).is_random && !quantizer.is_biased;
}

Combine combine_of(QuantizerKind quantizer) noexcept {
    return facts_of(quantizer).is_vote ? Combine::kMajority : Combine::kGather;
}

std::string_view combine_name(Combine combine) noexcept { return kCombineNames[static_cast<std::size_t>(combine)]; }

bool sends_all(const Selector& selector) noexcept { return selection_of(selector) == Selection::kEvery; }

bool has_ratio(const Selector& selector) noexcept { return stage_of(selector).has_ratio; }

bool is_keyed(const Selector& selector) noexcept { return selection_of(selector) == Selection::kKeyed; }

bool drops_errors(const Selector& selector) noexcept {
    return selector.is_faithful || (is_keyed(selector) && selector.feedback == Feedback::kNone);
}

bool loses_nothing(const Pipeline& pipeline) noexcept {
    return sends_all(pipeline.selector) && facts_of(pipeline.quantizer.kind).is_exact;
}

double expected_bits(const Pipeline& pipeline) noexcept {
    constexpr double kIndexBits = 8;  // where one in a hundred is sent
    const SelectorStage& selector = stage_of(pipeline.selector);
    const bool has_indices = selector.selection != Selection::kEvery && selector.selection != Selection::kKeyed;
    const double share =
        selector.expected_share != nullptr ? selector.expected_share(pipeline.selector) : pipeline.selector.ratio;
    return share *
           (coder_of(pipeline.quantizer.kind).expected_bits(pipeline.quantizer) + (has_indices ? kIndexBits : 0));
}

std::uint32_t code_bits(const Quantizer& quantizer) noexcept { return coder_of(quantizer.kind).code_bits(quantizer); }

}  // namespace gradsieve::codec

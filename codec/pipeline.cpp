#include "codec/pipeline.hpp"

#include "codec/pipeline_front.hpp"
#include "codec/pipeline_similarity.hpp"
#include "codec/pipeline_stages.hpp"
#include "codec/pipeline_whole.hpp"

#include <algorithm>
#include <array>

namespace gradsieve::codec {
namespace {

constexpr std::array<std::string_view, 5> kIndexCoderNames = {"auto", "rice", "bitmap", "raw32", "elias_fano"};
constexpr std::array<std::string_view, 2> kCombineNames = {"gather", "majority"};
constexpr std::array<std::string_view, 1> kEntropyCoderNames = {"entropy"};
constexpr std::array<std::string_view, 4> kRoleNames = {"selector", "quantizer", "index coder", "entropy coder"};

/// Role of a known name as an index into kRoleNames.
std::optional<std::size_t> role_of(std::string_view name) {
    if (position_of(selector_names(), name)) return 0;
    if (position_of(quantizer_names(), name)) return 1;
    if (position_of(kIndexCoderNames, name)) return 2;
    if (position_of(kEntropyCoderNames, name)) return 3;
    return std::nullopt;
}

Status unknown_stage(std::string_view name, std::size_t first_role) {
    std::vector<std::string_view> candidates;
    if (first_role == 0) candidates.push_back(kSimilarityName);
    if (first_role == 0) candidates.insert(candidates.end(), front_names().begin(), front_names().end());
    if (first_role == 0) candidates.insert(candidates.end(), whole_names().begin(), whole_names().end());
    if (first_role <= 0) candidates.insert(candidates.end(), selector_names().begin(), selector_names().end());
    if (first_role == 1) candidates.insert(candidates.end(), quantizer_names().begin(), quantizer_names().end());
    if (first_role == 1 || first_role == 2)
        candidates.insert(candidates.end(), kIndexCoderNames.begin(), kIndexCoderNames.end());
    if (first_role >= 1) candidates.insert(candidates.end(), kEntropyCoderNames.begin(), kEntropyCoderNames.end());
    std::string allowed;
    for (const auto candidate : candidates) allowed.append(allowed.empty() ? "" : ", ").append(candidate);
    return bad_text("codec stage", name, allowed, "did you mean " + std::string(nearest_name(name, candidates)) + "?");
}

std::string front_order() {
    std::string order(kSimilarityName);
    for (const std::string_view name : front_names()) order.append(", ").append(name);
    return order;
}

/// Refuses what would not mean what it says.
Status check_combination(const Pipeline& pipeline) {
    const Selector& selector = pipeline.selector;
    const Quantizer& quantizer = pipeline.quantizer;
    const IndexCoderKind index_coder = pipeline.index_coder;
    GRADSIEVE_TRY(check_front(pipeline));
    GRADSIEVE_TRY(check_reuse(pipeline));
    GRADSIEVE_TRY(check_entropy(pipeline));
    if (selector.kind == SelectorKind::kVarianceHybrid &&
        (quantizer.kind != QuantizerKind::kSign || quantizer.tau != selector.tau))
        return bad_text("quantizer after variance_hybrid", canonical_text(pipeline, Knobs::kKeep), "sign(scale=tau)",
                        "the hybrid sends +-tau: write sign(scale=tau), or leave the quantizer out");
    if (quantizer.kind == QuantizerKind::kVote && selector.kind != SelectorKind::kAll)
        return bad_text("codec stage sign: scale", "none", "mean, two_mean or a number after a selector but all",
                        "a sign without a size leaves nothing that a residual could keep: select with all, or give "
                        "the scale");
    if (quantizer.kind == QuantizerKind::kMinMax && selector.kind != SelectorKind::kAll)
        return bad_text("quantizer after " + std::string(name_of(selector)), "minmax", "all | minmax",
                        "a range of a list's values has no level for zero that is kept: select with all, or quantize "
                        "with dither");
    const bool has_own_residual = selector.kind != SelectorKind::kAll && !drops_errors(selector);
    const std::string feedback_of_stage = "codec stage " + std::string(name_of(quantizer)) + ": feedback";
    if (is_random(quantizer) && has_own_residual && quantizer.feedback == Feedback::kNone)
        return bad_text(feedback_of_stage, "none",
                        std::string(quantizer.kind == QuantizerKind::kInteger ? "unscaled" : "scaled or unscaled") +
                            " after a selector that keeps a residual",
                        "leave it out, or select with all");
    if (is_random(quantizer) && selector.is_faithful && quantizer.feedback != Feedback::kNone)
        return bad_text(feedback_of_stage, kFeedbackNames[static_cast<std::size_t>(quantizer.feedback)],
                        "none after mode=faithful, which drops errors", "leave it out, or write mode=conserving");
    if (is_keyed(selector) && drops_errors(selector) && is_random(quantizer) && quantizer.feedback != Feedback::kNone)
        return bad_text(feedback_of_stage, kFeedbackNames[static_cast<std::size_t>(quantizer.feedback)],
                        "none after a selector with feedback=none", "leave it out, or give the selector feedback");
    if (is_keyed(selector))
        return check_keyed(pipeline, name_of(quantizer), kIndexCoderNames[static_cast<std::size_t>(index_coder)]);
    if (selector.kind == SelectorKind::kAdaptiveRandom && quantizer.kind == QuantizerKind::kPow2 &&
        quantizer.scope == Scope::kTensor)
        return bad_text("scope of pow2 after adaptive_random", "tensor", "tile",
                        "the tensor's largest element need not be among those drawn: leave the scope out");
    if (selector.kind == SelectorKind::kAll && quantizer.kind != QuantizerKind::kPow2 &&
        index_coder != IndexCoderKind::kAuto)
        return bad_text("index coder after all", kIndexCoderNames[static_cast<std::size_t>(index_coder)], "auto",
                        "every element is sent, so there are no indices: leave the index coder out");
    return {};
}

}  // namespace

Result<Pipeline> parse_pipeline(std::string_view text) {
    GRADSIEVE_ASSIGN(std::vector<StageText> stages, split_pipeline(text));
    Pipeline pipeline;
    if (stages.front().name == kSimilarityName) {
        GRADSIEVE_TRY(read_similarity(stages.front(), pipeline));
        stages.erase(stages.begin());
        if (stages.empty())
            return bad_text("codec", text, "a selector behind similarity", "write e.g. similarity | topk(0.01)");
    }
    for (std::size_t next_front = 0; is_front(stages.front().name);) {
        const std::string front_name(stages.front().name);
        const std::size_t position = front_position(front_name);
        if (position < next_front) break;
        GRADSIEVE_TRY(read_front(stages.front(), pipeline.front));
        next_front = position + 1;
        stages.erase(stages.begin());
        if (stages.empty())
            return bad_text("codec", text, "a selector behind " + front_name,
                            "write e.g. momentum(0.9) | topk(0.001) | f32 | auto");
    }
    if (is_whole(stages.front().name)) {
        GRADSIEVE_TRY(read_whole_codec(stages, pipeline.whole));
        GRADSIEVE_TRY(check_front(pipeline));
        GRADSIEVE_TRY(check_reuse(pipeline));
        return pipeline;
    }
    std::size_t next_role = 0;
    bool has_quantizer = false;
    for (const StageText& stage : stages) {
        if (is_whole(stage.name))
            return bad_text("codec stage", stage.name, "in place of selector, quantizer and index coder",
                            "remove it, or the other stages");
        if (is_front(stage.name) || stage.name == kSimilarityName)
            return bad_text("codec stage", stage.name, "once, before the selector, in the order " + front_order(),
                            "move or remove it");
        const auto role = role_of(stage.name);
        if (!role && next_role <= 3) return unknown_stage(stage.name, next_role);
        if (!role || *role < next_role || (next_role == 0 && *role != 0))
            return bad_text(
                "codec stage", stage.name, "selector | quantizer | index coder | entropy, each once, in this order",
                role ? "its role is " + std::string(kRoleNames[*role]) + ": move or remove it" : "remove it");
        if (*role == 0) GRADSIEVE_TRY(read_selector(stage, pipeline.selector));
        if (*role == 1) GRADSIEVE_TRY(read_quantizer(stage, pipeline.selector, pipeline.quantizer));
        if (*role == 2) {
            pipeline.index_coder = static_cast<IndexCoderKind>(*position_of(kIndexCoderNames, stage.name));
            GRADSIEVE_TRY(ArgumentReader(stage).finish());
        }
        if (*role == 3) {
            pipeline.has_entropy = true;
            GRADSIEVE_TRY(ArgumentReader(stage).finish());
        }
        has_quantizer = has_quantizer || *role == 1;
        next_role = *role + 1;
    }
    if (has_tau(pipeline.selector) && !has_quantizer) {  // as the selectors were published
        pipeline.quantizer.kind = QuantizerKind::kSign;
        pipeline.quantizer.tau = pipeline.selector.tau;
    }
    GRADSIEVE_TRY(check_combination(pipeline));
    return pipeline;
}

std::string canonical_text(const Pipeline& pipeline, Knobs knobs) {
    const auto front = similarity_text(pipeline, knobs) + front_text(pipeline.front);
    if (has_phases(pipeline)) return front + whole_text(pipeline.whole);
    return front + selector_text(pipeline.selector, knobs) + " | " + quantizer_text(pipeline, knobs) + " | " +
           std::string(kIndexCoderNames[static_cast<std::size_t>(pipeline.index_coder)]) +
           (pipeline.has_entropy ? " | entropy" : "");
}

bool has_residual(const Pipeline& pipeline) noexcept {
    const Quantizer& quantizer = pipeline.quantizer;
    if (has_phases(pipeline)) return true;
    if (is_keyed(pipeline.selector)) return !drops_errors(pipeline.selector);
    const bool drops_rounding = quantizer.kind == QuantizerKind::kVote || has_drive_scale(quantizer) ||
                                (is_random(quantizer) && quantizer.feedback == Feedback::kNone);
    return pipeline.selector.kind != SelectorKind::kAll || (quantizer.kind != QuantizerKind::kF32 && !drops_rounding);
}

std::string_view combine_name(Combine combine) noexcept { return kCombineNames[static_cast<std::size_t>(combine)]; }

}  // namespace gradsieve::codec

#include "codec/codec_rules.hpp"

#include "codec/pipeline_text.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>

namespace gradsieve::codec {
namespace {

constexpr std::size_t kMostRules = 64;
constexpr std::string_view kElements = "elements";
constexpr std::string_view kShape = "CONDITIONS: PIPELINE, e.g. *.bias: all | f32";

/// The number behind `elements <`, exclusive bounds made inclusive.
Status read_bound(std::string_view condition, std::string_view comparison, TensorRule& inout_rule) {
    const bool is_below = comparison.front() == '<';
    std::size_t length = 1;
    if (comparison.size() > 1 && comparison[1] == '=') length = 2;
    const auto digits = trimmed(comparison.substr(length));
    ElementCount number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool is_strict = length == 1;
    const bool is_empty_range = is_strict && number == (is_below ? 0 : std::numeric_limits<ElementCount>::max());
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || is_empty_range)
        return bad_text("codec rule's condition", condition, "elements <, <=, > or >= a whole number that leaves some",
                        "write e.g. elements < 4096");
    if (is_below) {
        inout_rule.most_elements = std::min(inout_rule.most_elements, is_strict ? number - 1 : number);
    } else {
        inout_rule.least_elements = std::max(inout_rule.least_elements, is_strict ? number + 1 : number);
    }
    return {};
}

Status read_condition(std::string_view condition, TensorRule& inout_rule) {
    if (condition.starts_with(kElements)) {
        const auto rest = trimmed(condition.substr(kElements.size()));
        if (rest.starts_with('<') || rest.starts_with('>')) return read_bound(condition, rest, inout_rule);
    }
    const bool is_pattern = !condition.empty() && condition.find_first_of(" \t<>=|()") == std::string_view::npos;
    if (!is_pattern || !inout_rule.name_pattern.empty())
        return bad_text("codec rule's condition", condition,
                        "one pattern of tensor names such as *.bias, and elements <, <=, > or >= a number",
                        is_pattern ? "make it a rule of its own" : "write CONDITIONS: PIPELINE, joined by &");
    inout_rule.name_pattern = condition;
    return {};
}

Result<TensorRule> read_rule(std::string_view text) {
    const auto colon = text.find(':');
    if (colon == std::string_view::npos)
        return bad_text("codec rule", text, kShape, "write a colon before the pipeline, or remove the semicolon");
    TensorRule rule;
    for (const std::string_view condition : split_text(text.substr(0, colon), '&'))
        GRADSIEVE_TRY(read_condition(condition, rule));
    if (rule.least_elements > rule.most_elements)
        return bad_text("codec rule", text, "conditions that some tensor fulfils", "no number of elements is left");
    auto pipeline = parse_pipeline(trimmed(text.substr(colon + 1)));
    if (!pipeline.is_ok()) return pipeline.error().with_context("codec rule '" + std::string(text) + "'");
    rule.pipeline = *pipeline;
    return rule;
}

}  // namespace

Result<RuledCodec> parse_codec(std::string_view text) {
    const auto parts = split_text(text, ';');
    if (parts.size() - 1 > kMostRules)
        return bad_text("number of codec rules", std::to_string(parts.size() - 1),
                        "at most " + std::to_string(kMostRules), "join some by a pattern");
    RuledCodec codec;
    GRADSIEVE_ASSIGN(codec.main, parse_pipeline(parts.front()));
    for (std::size_t part = 1; part < parts.size(); ++part) {
        GRADSIEVE_ASSIGN(auto rule, read_rule(parts[part]));
        codec.rules.push_back(std::move(rule));
    }
    return codec;
}

std::string canonical_codec_text(const RuledCodec& codec) {
    std::string text = canonical_text(codec.main, Knobs::kKeep);
    for (const TensorRule& rule : codec.rules) {
        std::vector<std::string> conditions;
        if (!rule.name_pattern.empty()) conditions.push_back(rule.name_pattern);
        if (rule.least_elements > 0) conditions.push_back("elements >= " + std::to_string(rule.least_elements));
        if (rule.most_elements != std::numeric_limits<ElementCount>::max())
            conditions.push_back("elements <= " + std::to_string(rule.most_elements));
        if (conditions.empty()) conditions.emplace_back("elements >= 0");
        for (std::size_t at = 0; at < conditions.size(); ++at) text += (at == 0 ? "; " : " & ") + conditions[at];
        text += ": " + canonical_text(rule.pipeline, Knobs::kKeep);
    }
    return text;
}

const Pipeline* ruled_pipeline(const RuledCodec& codec, const std::string& name, ElementCount elements) {
    const auto fits = [&](const TensorRule& rule) {
        return elements >= rule.least_elements && elements <= rule.most_elements &&
               (rule.name_pattern.empty() || ::fnmatch(rule.name_pattern.c_str(), name.c_str(), 0) == 0);
    };
    const auto rule = std::find_if(codec.rules.begin(), codec.rules.end(), fits);
    return rule == codec.rules.end() ? nullptr : &rule->pipeline;
}

}  // namespace gradsieve::codec

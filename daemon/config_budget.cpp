#include "daemon/config_budget.hpp"

#include "codec/codec_rules.hpp"
#include "codec/density.hpp"
#include "codec/pipeline_text.hpp"
#include "daemon/config.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace gradsieve::daemon {

namespace {

constexpr std::string_view kBytesName = "budget_bytes_per_step", kMsName = "budget_ms_per_step";
constexpr std::string_view kShape = "budget_bytes_per_step = BYTES or budget_ms_per_step = MILLISECONDS";

Status bad_budget(std::string_view part, std::string_view allowed, std::string_view what_to_do) {
    return codec::bad_text("budget", part, allowed, what_to_do);
}

Status read_budget(std::string_view part, Budget& inout_budget) {
    const auto equals = part.find('=');
    const auto name = codec::trimmed(part.substr(0, equals));
    const bool is_bytes = name == kBytesName;
    if (equals == std::string_view::npos || (!is_bytes && name != kMsName))
        return bad_budget(part, kShape, "write one of them behind the codec, or remove it");
    const auto digits = codec::trimmed(part.substr(equals + 1));
    double number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool is_number = error == std::errc() && end == digits.data() + digits.size() && std::isfinite(number);
    const bool is_allowed = is_bytes ? number >= 1 && number <= kMostBudgetBytes && number == std::floor(number)
                                     : number >= kLeastBudgetMs && number <= kMostBudgetMs;
    if (!is_number || !is_allowed)
        return bad_budget(part, is_bytes ? "a whole number of bytes from 1 to 1e15" : "0.001 to 3600000 ms",
                          "write a number in that range");
    if (inout_budget.is_set()) return bad_budget(part, "one budget", "remove one of the two");
    (is_bytes ? inout_budget.bytes_per_step : inout_budget.ms_per_step) = number;
    return {};
}

bool is_budget(std::string_view part) { return part.starts_with("budget") && part.find(':') == std::string_view::npos; }

}  // namespace

std::string budget_text(const Budget& budget) {
    if (budget.bytes_per_step > 0)
        return std::string(kBytesName) + " = " + std::to_string(static_cast<std::uint64_t>(budget.bytes_per_step));
    if (budget.ms_per_step > 0) return std::string(kMsName) + " = " + codec::number_text(budget.ms_per_step);
    return {};
}

Result<BudgetedCodec> split_budget(std::string_view text) {
    BudgetedCodec split;
    bool is_first = true;
    for (const auto part : codec::split_text(text, ';')) {
        if (!is_first && is_budget(part)) {
            GRADSIEVE_TRY(read_budget(part, split.budget));
            continue;
        }
        split.codec.append(is_first ? "" : "; ").append(part);
        is_first = false;
    }
    return split;
}

std::string budget_refusal(const Config& config) {
    if (config.budget_bytes_per_step > 0 && config.budget_ms_per_step > 0)
        return "budget_ms_per_step beside budget_bytes_per_step: allowed is one of them; remove the other";
    const auto own = split_budget(config.codec);
    const bool has_own = own.is_ok() && own->budget.is_set();
    if (config.budget_bytes_per_step == 0 && config.budget_ms_per_step == 0 && !has_own) return {};
    if (config.plan == "sharded")
        return "a budget under plan = \"sharded\": allowed is plan = \"gather\", where a node's own payloads are all "
               "that "
               "it sends; remove the budget, or change the plan";
    if (config.codec.empty() || !own.is_ok()) return {};
    const auto parsed = codec::parse_codec(own->codec);
    if (!parsed.is_ok()) return {};  // named by whoever reads the key
    const auto main = codec::density_response(parsed->main);
    const bool has_rule = std::ranges::any_of(
        parsed->rules, [](const codec::TensorRule& rule) { return codec::density_response(rule.pipeline).is_ok(); });
    return main.is_ok() || has_rule ? std::string() : std::string(main.error().text());
}

}  // namespace gradsieve::daemon

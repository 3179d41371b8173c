// What a step may cost: a budget in place of a ratio, as keys of the configuration or at the end of a codec's text,
// where it goes wherever that goes: `topk(0.01) | pow2; budget_bytes_per_step = 200000`. Plain values; any thread.
#pragma once

#include "base/status.hpp"

#include <string>
#include <string_view>

namespace gradsieve::daemon {

inline constexpr double kMostBudgetBytes = 1e15;
inline constexpr double kLeastBudgetMs = 0.001, kMostBudgetMs = 3'600'000;

/// At most one of them; 0 = none.
struct Budget {
    double bytes_per_step = 0;  ///< 1 to kMostBudgetBytes, whole: payload bytes that this node sends, in the mean
    double ms_per_step = 0;     ///< kLeastBudgetMs to kMostBudgetMs: coding and sending, were nothing to overlap
    [[nodiscard]] bool is_set() const noexcept { return bytes_per_step > 0 || ms_per_step > 0; }
    [[nodiscard]] double limit() const noexcept { return bytes_per_step > 0 ? bytes_per_step : ms_per_step; }
    bool operator==(const Budget&) const = default;
};
/// "budget_bytes_per_step = 200000"; empty if none is set.
[[nodiscard]] std::string budget_text(const Budget& budget);

struct BudgetedCodec {
    std::string codec;  ///< the text without the budget
    Budget budget;
};
/// Takes the budget off a codec's text, whichever of its parts between semicolons it is. Errors: kInvalidArgument
/// (another word that begins with `budget` and has no colon, a number outside of its range, two budgets).
[[nodiscard]] Result<BudgetedCodec> split_budget(std::string_view text);

struct Config;
/// Why the configuration's budget cannot be kept: two budgets, the sharded plan, or a default codec without a number
/// that a node may move alone. Empty: it can, or there is none.
[[nodiscard]] std::string budget_refusal(const Config& config);

}  // namespace gradsieve::daemon

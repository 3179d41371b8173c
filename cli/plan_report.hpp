// Whether compressing pays for a model on a cluster: the cost of a step with each of several codecs beside that of a
// plain all-reduce, a choice, and the answer in words. Pure; any thread.
#pragma once

#include "cli/console.hpp"

#include "exchange/cost_model.hpp"

#include <string>
#include <vector>

namespace gradsieve::cli {

struct PlanRow {
    std::string name;  ///< "all-reduce, fp32", or the codec
    bool is_codec = false;
    exchange::StepCost cost;
    bool is_sharded = false;  ///< the codec's plan
};
struct PlanReport {
    exchange::StepFacts step;
    exchange::LinkFacts link;
    std::string coding;            ///< where the codecs' speeds come from
    std::string host;              ///< where the host's own cost of exchanging comes from
    bool is_of_gradients = false;  ///< codecs' sizes are of recorded gradients, not of noise
    std::vector<PlanRow>
        rows;  ///< all-reduces first, then codecs from the mildest to the strongest; one of each at least
};

enum class PlanVerdict { kPays, kHardlyPays, kStepAside };
struct PlanChoice {
    PlanVerdict verdict = PlanVerdict::kStepAside;
    std::size_t plain = 0;  ///< row of the fastest all-reduce
    std::size_t codec = 0;  ///< row of the mildest codec whose step is at most 5 % longer than the fastest codec's
};
/// Pays: a step is at least a tenth shorter than with the fastest all-reduce; hardly: at least a fiftieth.
[[nodiscard]] PlanChoice choose_plan(const PlanReport& report);

[[nodiscard]] std::string render_plan(const PlanReport& report, const Look& look);
[[nodiscard]] std::string plan_json(const PlanReport& report);

/// "1Gbit", "25 Gbit/s", "100M", "0.5G": bits per second; 0 if `text` is nothing of that kind.
[[nodiscard]] double link_speed(const std::string& text);

}  // namespace gradsieve::cli

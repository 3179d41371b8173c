// What the ranks of a run said, over all lives of each: averages, sums of what went in and out, and what went wrong.
// Of the command's thread that drives the run.
#pragma once

#include "tests/e2e/cluster.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace gradsieve::survive {

using Instant = std::chrono::steady_clock::time_point;

class RunLedger {
public:
    using Step = std::pair<std::string, std::uint64_t>;  ///< group and number
    struct Average {
        std::string digest;
        double sum = 0;  ///< of its elements
        std::set<std::size_t> readers;
    };
    struct Again {
        std::size_t rank = 0;
        Instant at;
        std::string text;  ///< the status that ended the rank's job
    };

    /// One line of a rank's output.
    void take(std::size_t rank, const std::string& line, Instant at);

    /// The newest step whose average the rank has said.
    [[nodiscard]] std::uint64_t last_step(std::size_t rank) const;
    /// Steps up to `steps` of which no rank has the average.
    [[nodiscard]] std::vector<Step> unread(std::uint64_t steps) const;
    /// What was handed in up to `steps`, less what came out and less `residuals` (by group, weighted), of the magnitude
    /// of what was handed in: the share of gradient mass that is nowhere. The worse of the groups.
    [[nodiscard]] double lost_mass(std::uint64_t steps, std::size_t world,
                                   const std::map<std::string, double>& residuals) const;

    std::map<Step, Average> averages;
    std::map<Step, std::map<std::size_t, double>> handed_in;  ///< sums of gradients, by rank
    std::vector<Again> again;
    std::vector<std::string> conflicts;             ///< steps that came with two digests
    std::vector<std::string> overdue;               ///< calls that came back after their deadline
    std::vector<std::string> errors;                ///< lines that begin with "error" or "unsaved"
    std::set<std::size_t> finished;                 ///< ranks whose newest life has come to its last step
    std::map<std::size_t, std::size_t> beginnings;  ///< by rank: lives that began at step 1

private:
    std::map<std::size_t, std::uint64_t> last_;
};

inline const std::vector<std::string>& groups() {
    static const std::vector<std::string> names{"", "two"};
    return names;
}

}  // namespace gradsieve::survive

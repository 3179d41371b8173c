#include "tests/survive/run_ledger.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace gradsieve::survive {

void RunLedger::take(std::size_t rank, const std::string& line, Instant at) {
    const auto begins = [&](const char* with) { return line.starts_with(with); };
    std::istringstream words(line);
    std::string name;
    std::uint64_t step = 0;
    if (begins("average")) {
        std::string digest;
        words >> name >> step >> digest;
        auto& average = averages[{name.substr(7), step}];
        if (!average.digest.empty() && average.digest != digest)
            conflicts.push_back("step " + std::to_string(step) + " of rank " + std::to_string(rank) +
                                " has other bits");
        average.digest = digest;
        average.readers.insert(rank);
        last_[rank] = std::max(last_[rank], step);
    } else if (begins("gives")) {
        words >> name >> step;
        words >> handed_in[{name.substr(5), step}][rank];
    } else if (begins("takes")) {
        words >> name >> step;
        words >> averages[{name.substr(5), step}].sum;
    } else if (begins("again ")) {
        again.push_back({rank, at, line.substr(6)});
    } else if (begins("overdue ")) {
        overdue.push_back("rank " + std::to_string(rank) + ": " + line.substr(8) + " ms");
    } else if (begins("error ") || begins("unsaved ")) {
        errors.push_back("rank " + std::to_string(rank) + ": " + line);
    } else if (begins("finished")) {
        finished.insert(rank);
    } else if (line == "started 1") {
        ++beginnings[rank];
    }
}

std::uint64_t RunLedger::last_step(std::size_t rank) const {
    const auto place = last_.find(rank);
    return place == last_.end() ? 0 : place->second;
}

std::vector<RunLedger::Step> RunLedger::unread(std::uint64_t steps) const {
    std::vector<Step> found;
    for (const auto& group : groups())
        for (std::uint64_t step = 1; step <= steps; ++step) {
            const auto place = averages.find({group, step});
            if (place == averages.end() || place->second.readers.empty()) found.emplace_back(group, step);
        }
    return found;
}

double RunLedger::lost_mass(std::uint64_t steps, std::size_t world,
                            const std::map<std::string, double>& residuals) const {
    double worst = 0;
    for (const auto& group : groups()) {
        double balance = 0;
        double magnitude = 0;
        for (std::uint64_t step = 1; step <= steps; ++step) {
            const auto given = handed_in.find({group, step});
            const auto taken = averages.find({group, step});
            if (given == handed_in.end() || given->second.size() != world) return std::nan("");
            double mean = 0;
            for (const auto& [rank, sum] : given->second) mean += sum / static_cast<double>(world);
            balance += mean - (taken == averages.end() ? 0 : taken->second.sum);
            magnitude += std::abs(mean);
        }
        const auto residual = residuals.find(group);
        if (residual == residuals.end()) return std::nan("");
        worst = std::max(worst, std::abs(balance - residual->second) / magnitude);
    }
    return worst;
}

}  // namespace gradsieve::survive

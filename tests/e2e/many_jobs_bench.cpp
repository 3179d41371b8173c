// What four misbehaving jobs cost the four beside them: median steps with faults against those of the same eight
// without, paired, in turn. many_jobs_bench [rounds] [steps]
#include "tests/e2e/many_jobs.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace {

/// A job lives for about a second: with a death every few steps, the start of processes would be what is measured.
constexpr std::uint64_t kKillAt = 200;

double quantile(std::vector<double> values, double share) {
    std::ranges::sort(values);
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
    using namespace gradsieve::e2e;
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 10;
    const auto steps = static_cast<std::uint64_t>(argc > 2 ? std::atoll(argv[2]) : 1000);
    if (rounds < 1 || steps < 10) {
        std::fputs("many_jobs_bench: allowed are 1 or more rounds of 10 or more steps\n", stderr);
        return 1;
    }
    Cluster cluster(2, many_jobs_configuration());
    std::map<std::string, std::vector<double>> quiet_us;
    std::map<std::string, std::vector<double>> ratios;
    std::size_t kills = 0;
    std::size_t failed_steps = 0;
    std::size_t scribbles = 0;
    std::size_t exhausts = 0;
    double longest_us = 0;
    for (int round = 0; round < rounds; ++round) {
        ManyJobs seen[2];
        for (const int turn : {0, 1}) {
            const bool has_faults = (turn + round) % 2 == 1;
            seen[has_faults ? 1 : 0] =
                run_many_jobs(cluster, has_faults, steps, std::to_string(2 * round + turn), kKillAt);
        }
        for (const auto& [name, job] : seen[0].healthy) {
            const auto& loud = seen[1].healthy.at(name);
            if (job.digests != loud.digests || job.digests.front() == "none") {
                std::fprintf(stderr, "many_jobs_bench: %s: results differ\n", name.c_str());
                return 1;
            }
            quiet_us[name].push_back(job.median_us);
            ratios[name].push_back(loud.median_us / job.median_us);
            longest_us = std::max(longest_us, loud.longest_us);
        }
        const auto& faults = seen[1].faults;
        kills += faults.kills;
        failed_steps += faults.failed_steps;
        scribbles += faults.scribbles.size();
        exhausts += faults.exhausts.size();
    }
    std::printf(
        "%d rounds of %llu steps; with faults: %zu ranks killed, %zu steps failed by NaN, %zu rounds of scribbling,"
        " %zu of exhausting; longest step %.0f ms, results equal\n",
        rounds, static_cast<unsigned long long>(steps), kills, failed_steps, scribbles, exhausts, longest_us / 1000);
    std::printf("%-10s %14s %26s\n", "job", "median step us", "with faults, p10 median p90");
    for (const auto& [name, all] : ratios)
        std::printf("%-10s %14.0f %8.2f %8.2f %8.2f\n", name.c_str(), quantile(quiet_us[name], 0.5), quantile(all, 0.1),
                    quantile(all, 0.5), quantile(all, 0.9));
    return 0;
}

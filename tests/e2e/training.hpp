// Four ranks on two nodes that are killed in the middle of a run, and what an uninterrupted run gives. For the tests of
// what survives; test thread only.
#pragma once

#include "tests/e2e/cluster.hpp"

#include <gtest/gtest.h>
#include <csignal>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace gradsieve::e2e {

inline constexpr std::size_t kWorld = 4;
inline constexpr std::uint64_t kSteps = 120;
using Averages = std::map<std::string, std::string>;  ///< digest by "averageGROUP STEP"

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Averages in a rank's output; a step that came twice must have come with the same bits.
inline Averages averages_of(const Process& rank) {
    Averages averages;
    std::istringstream lines(rank.output());
    for (std::string line; std::getline(lines, line);) {
        const auto space = line.rfind(' ');
        if (line.rfind("average", 0) != 0 || space == std::string::npos) continue;
        const auto [place, is_new] = averages.emplace(line.substr(0, space), line.substr(space + 1));
        EXPECT_EQ(place->second, line.substr(space + 1)) << place->first << " came twice, with other bits";
    }
    return averages;
}

/// Two nodes, four ranks.
class Training {
public:
    explicit Training(bool has_managers = true,
                      const std::string& extra = "[network]\nheartbeat_ms = 100\nsilent_ms = 2000\n")
        : cluster(2, extra, "127.0.0.1", has_managers) {}

    std::vector<std::string> options(std::size_t rank) const {
        std::vector<std::string> all{"--rank",  std::to_string(rank),   "--world",      std::to_string(kWorld),
                                     "--steps", std::to_string(kSteps), "--compute-ms", std::to_string(compute_ms)};
        if (!codec.empty()) all.insert(all.end(), {"--codec", codec});
        if (codec.find("skip") != std::string::npos) all.insert(all.end(), {"--steady", "5"});
        return all;
    }
    Process rank(std::size_t rank, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> arguments{resuming_rank_program(), "--socket", cluster.socket(rank / 2)};
        for (const auto& option : options(rank)) arguments.push_back(option);
        arguments.insert(arguments.end(), more.begin(), more.end());
        return Process(arguments);
    }
    void start_ranks() {
        for (std::size_t index = 0; index < kWorld; ++index) ranks.push_back(rank(index));
    }
    void wait_for_step(std::size_t rank, std::uint64_t step) {
        ASSERT_TRUE(ranks[rank].wait_for_line("average " + std::to_string(step) + " ", Milliseconds(60'000)))
            << "step " << step << "\n"
            << text();
    }
    /// All ranks come to the end and leave. Nobody began anew after a kill: the bits of a second beginning would be the
    /// uninterrupted run's as well.
    void finish() {
        for (auto& rank : ranks) ASSERT_TRUE(rank.wait_for_line("finished", Milliseconds(60'000))) << text();
        for (auto& rank : ranks) rank.say("go");
        for (auto& rank : ranks) EXPECT_EQ(rank.wait_for_exit(), 0) << text();
        for (std::size_t index = 0; index < kWorld; ++index)
            EXPECT_EQ(beginnings(ranks[index]), revived.count(index) > 0 ? 0U : 1U) << text();
    }
    static std::size_t beginnings(const Process& rank) {
        std::istringstream lines(rank.output());
        std::size_t count = 0;
        for (std::string line; std::getline(lines, line);) count += line == "started 1" ? 1 : 0;
        return count;
    }
    [[nodiscard]] std::string text() {
        std::string text;
        for (auto& rank : ranks) text += "--- rank\n" + tail(rank.output());
        for (std::size_t node = 0; node < 2; ++node) text += "--- daemon\n" + tail(daemon_output(node));
        return text;
    }
    /// All that it has said so far.
    [[nodiscard]] const std::string& daemon_output(std::size_t node) {
        (void)cluster.daemon(node).wait_for_line("no such line", Milliseconds(50));
        return cluster.daemon(node).output();
    }
    static std::string tail(const std::string& text) {
        return text.size() < 1500 ? text : text.substr(text.size() - 1500);
    }

    Cluster cluster;
    unsigned compute_ms = 1;  ///< what a training step takes besides
    std::string codec;        ///< empty: the ranks' own
    std::vector<Process> ranks;
    std::set<std::size_t> revived;  ///< ranks whose first process was killed
};

inline const Averages& uninterrupted() {
    static const Averages averages = [] {
        Training run(false);
        run.start_ranks();
        run.finish();
        auto first = averages_of(run.ranks[0]);
        for (const auto& rank : run.ranks) EXPECT_EQ(averages_of(rank), first);
        EXPECT_EQ(first.size(), 2 * kSteps) << "two groups";
        return first;
    }();
    return averages;
}
/// Nobody ever saw other bits. What was committed but not read when the daemon died does not come again: each kill may
/// cost a rank that one average of each group.
inline void expect_as_uninterrupted(Training& run, std::size_t kills = 1) {
    for (const auto& rank : run.ranks) {
        const auto seen = averages_of(rank);
        for (const auto& [step, digest] : seen) EXPECT_EQ(digest, uninterrupted().at(step)) << step << run.text();
        EXPECT_GE(seen.size() + 2 * kills, uninterrupted().size()) << run.text();
        EXPECT_TRUE(seen.count("average " + std::to_string(kSteps)) > 0);
    }
}
/// The same of a run with a codec of its own, whose undisturbed averages are `expected`.
inline void expect_averages(Training& run, const Averages& expected) {
    for (const auto& rank : run.ranks) {
        const auto seen = averages_of(rank);
        for (const auto& [step, digest] : seen) EXPECT_EQ(digest, expected.at(step)) << step << run.text();
        EXPECT_GE(seen.size() + 2, expected.size()) << run.text();
        EXPECT_TRUE(seen.count("average " + std::to_string(kSteps)) > 0);
    }
}
/// With momentum in front, whose state has an array more.
inline const std::string kMomentumCodec = "momentum(0.9) | topk(0.02) | pow2(bits=4) | auto";
/// With a factor beside the residual, and two phases in each step.
inline const std::string kLowRankCodec = "lowrank(2, columns=square)";
/// With the average of what all nodes have sent, which counts only beside that.
inline const std::string kDeltaCodec = "delta | topk(0.02) | f32 | auto";
/// Skips most of the steps of gradients that stay for five, and keeps the payload that answers them.
inline const std::string kBudgetCodec = "gaussian_k(0.01) | f32; budget_bytes_per_step = 4000";
inline const std::string kSkippingCodec = "similarity(skip=0.5, most=3) | all | dither(levels=7)";
inline Averages uninterrupted_with(const std::string& codec) {
    Training run(false);
    run.codec = codec;
    run.start_ranks();
    run.finish();
    return averages_of(run.ranks[0]);
}
inline const Averages& uninterrupted_momentum() {
    static const Averages averages = uninterrupted_with(kMomentumCodec);
    return averages;
}
inline const Averages& uninterrupted_low_rank() {
    static const Averages averages = uninterrupted_with(kLowRankCodec);
    return averages;
}
inline const Averages& uninterrupted_delta() {
    static const Averages averages = uninterrupted_with(kDeltaCodec);
    return averages;
}
inline const Averages& uninterrupted_skipping() {
    static const Averages averages = uninterrupted_with(kSkippingCodec);
    return averages;
}
inline const Averages& uninterrupted_budget() {
    static const Averages averages = uninterrupted_with(kBudgetCodec);
    return averages;
}
/// Codecs whose state has an array besides the residual, and what undisturbed runs give.
struct CodecWithArray {
    const char* array;
    const std::string& codec;
    const Averages& (*uninterrupted)();
};
inline const CodecWithArray kCodecsWithArrays[] = {{"momentum", kMomentumCodec, uninterrupted_momentum},
                                                   {"factor", kLowRankCodec, uninterrupted_low_rank},
                                                   {"average", kDeltaCodec, uninterrupted_delta},
                                                   {"sent", kSkippingCodec, uninterrupted_skipping},
                                                   {"steering", kBudgetCodec, uninterrupted_budget}};
inline std::size_t lives(const Process& rank) {
    std::size_t count = rank.output().rfind("started ", 0) == 0 ? 1 : 0;
    for (auto at = rank.output().find("\nstarted "); at != std::string::npos;
         at = rank.output().find("\nstarted ", at + 1))
        ++count;
    return count;
}

/// What dies, at a moment that a random number chooses within the steps around `step`.
inline void kill_and_revive(Training& run, unsigned victims, std::uint64_t step, std::mt19937& random) {
    run.wait_for_step(random() % kWorld, step);
    if (::testing::Test::HasFatalFailure()) return;
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 3000);
    while (std::chrono::steady_clock::now() < until) {}
    for (std::size_t node = 0; node < 2; ++node)
        if ((victims >> node & 1U) != 0) run.cluster.daemon(node).send_signal(SIGKILL);
    if ((victims & 4U) != 0) {
        auto& rank = run.ranks[random() % kWorld];
        rank.send_signal(SIGKILL);
        ASSERT_TRUE(rank.wait_for_exit());
        const auto index = static_cast<std::size_t>(&rank - run.ranks.data());
        auto before = averages_of(rank);
        for (const auto& [at, digest] : before) EXPECT_EQ(digest, uninterrupted().at(at));
        std::vector<Process> kept;
        for (std::size_t other = 0; other < kWorld; ++other)
            kept.push_back(other == index ? run.rank(index) : std::move(run.ranks[other]));
        run.ranks.clear();
        run.revived.insert(index);
        for (auto& process : kept) run.ranks.push_back(std::move(process));
    }
    for (std::size_t node = 0; node < 2; ++node)
        if ((victims >> node & 1U) != 0) {
            ASSERT_TRUE(run.cluster.daemon(node).wait_for_exit());
            run.cluster.restart_daemon(node);
        }
}

}  // namespace gradsieve::e2e

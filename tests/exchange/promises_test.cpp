// Random runs of whole jobs under delay, repetition, loss, cut links and deaths: whatever happens, no two ranks get
// different bits for a step, nodes that reach each other end with one verdict, they are at most one step apart, and
// every wait ends. Each run prints its seed when it fails.
#include "tests/exchange/sim.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace gradsieve::exchange {
namespace {

using namespace std::chrono_literals;

SimOptions random_options(std::uint64_t seed) {
    std::mt19937_64 random(seed * 977 + 3);
    const std::size_t nodes = 1 + random() % 5;
    std::vector<std::vector<Rank>> ranks(nodes);
    const auto world = static_cast<std::uint32_t>(nodes + random() % 4);
    for (Rank rank = 0; rank < world; ++rank)
        ranks[rank < nodes ? (rank + seed) % nodes : random() % nodes].push_back(rank);
    const auto tensors = 1 + static_cast<std::uint32_t>(random() % 6);
    const auto groups = 1 + static_cast<std::uint32_t>(random() % 2);
    using Make = JobSpec (*)(std::uint32_t, std::uint32_t, std::uint32_t, std::uint8_t);
    constexpr Make kSpecs[] = {make_spec, make_phased_spec, make_sharded_spec};
    SimOptions options{.ranks = ranks, .spec = kSpecs[seed % 3](world, tensors, groups, 0)};
    options.seed = seed;
    options.delay_most = std::chrono::microseconds(100 + random() % 20000);
    options.is_bulk_ordered = random() % 2 == 0;
    options.keep_ended = random() % 4 != 0;
    if (random() % 2 == 0) options.repeat = 0.1;
    if (random() % 3 == 0) options.limits.credit_bytes = 1 + random() % 300;
    options.asks_for_answers = random() % 2 == 0;
    if (random() % 2 == 0) options.limits.frame_target_bytes = 1 + random() % 400;
    return options;
}

/// Every wait ends, save that a job may wait for ranks that never come.
bool has_ended(Sim& sim, Duration limit) {
    if (sim.run_until_done(limit)) return true;
    for (std::size_t node = 0; node < sim.size(); ++node)
        if (sim.node(node).is_alive && !sim.node(node).members.empty() && !sim.node(node).end) return false;
    return true;
}

void expect_kept(Sim& sim) { EXPECT_TRUE(sim.violations().empty()) << sim.text(); }

class Seeds : public testing::TestWithParam<std::uint64_t> {};  // each value is a block of seeds

/// GRADSIEVE_SEEDS makes the blocks longer, for a search over night.
template <typename Run>
void for_seeds(std::uint64_t block, const Run& run) {
    const char* const text = std::getenv("GRADSIEVE_SEEDS");
    const std::uint64_t count = text == nullptr ? 40 : std::strtoull(text, nullptr, 10);
    for (std::uint64_t seed = block * count; seed < (block + 1) * count && !testing::Test::HasFailure(); ++seed)
        run(seed);
}

TEST_P(Seeds, without_faults_every_step_succeeds_everywhere) {
    for_seeds(GetParam(), [](std::uint64_t seed) {
        Sim sim(random_options(seed));
        sim.train(8, seed % 2 == 0 ? 0ms : 30ms);
        ASSERT_TRUE(sim.run_until_done(60s)) << sim.text();
        for (std::size_t node = 0; node < sim.size(); ++node) {
            if (sim.node(node).members.empty()) continue;
            EXPECT_TRUE(sim.node(node).end->is_ok()) << sim.text();
            for (const auto& entry : sim.node(node).committed) EXPECT_EQ(entry.second, 8U) << sim.text();
        }
        expect_kept(sim);
    });
}

/// Links drop with what was on them and come back before peer_timeout: nothing is lost.
TEST_P(Seeds, cut_links_that_heal_lose_no_step) {
    for_seeds(GetParam(), [](std::uint64_t seed) {
        Sim sim(random_options(seed));
        std::mt19937_64 random(seed);
        sim.train(8, 30ms);
        for (int cut = 0; cut < 4 && sim.size() > 1; ++cut) {
            const std::size_t a = random() % sim.size();
            const std::size_t b = (a + 1 + random() % (sim.size() - 1)) % sim.size();
            const auto start = std::chrono::milliseconds(random() % 400);
            const auto state = random() % 2 == 0 ? LinkState::kClosed : LinkState::kSilent;
            sim.at(start, [&sim, a, b, state] { sim.set_link(a, b, state); });
            sim.at(start + std::chrono::milliseconds(1 + random() % 1000),
                   [&sim, a, b] { sim.set_link(a, b, LinkState::kUp); });
        }
        ASSERT_TRUE(sim.run_until_done(60s)) << sim.text();
        Step least = 8;
        for (std::size_t node = 0; node < sim.size(); ++node)
            for (const auto& entry : sim.node(node).committed) least = std::min(least, entry.second);
        EXPECT_EQ(least, 8U) << sim.text();
        expect_kept(sim);
    });
}

/// A daemon dies at some moment: the survivors agree on the last step and end.
TEST_P(Seeds, survivors_of_a_dead_daemon_end_with_one_verdict) {
    for_seeds(GetParam(), [](std::uint64_t seed) {
        Sim sim(random_options(seed));
        std::mt19937_64 random(seed);
        const std::size_t victim = random() % sim.size();
        const bool is_restart = random() % 2 == 0;
        sim.train(50, 5ms);
        sim.at(std::chrono::microseconds(random() % 300000), [&sim, victim, is_restart] {
            if (is_restart)
                sim.restart(victim);
            else
                sim.kill(victim);
        });
        ASSERT_TRUE(has_ended(sim, 60s)) << sim.text();
        std::map<GroupNumber, std::set<Step>> committed;
        for (std::size_t node = 0; node < sim.size(); ++node)
            if (sim.node(node).is_alive && node != victim)
                for (const auto& entry : sim.node(node).committed) committed[entry.first].insert(entry.second);
        for (const auto& entry : committed) EXPECT_EQ(entry.second.size(), 1U) << sim.text();
        expect_kept(sim);
    });
}

/// The network falls apart for good: each part ends, all nodes of one part with the same steps.
TEST_P(Seeds, each_part_of_a_split_network_ends_with_one_verdict) {
    for_seeds(GetParam(), [](std::uint64_t seed) {
        Sim sim(random_options(seed));
        if (sim.size() < 2) return;
        std::mt19937_64 random(seed);
        const std::uint64_t side = 1 + random() % ((1ULL << sim.size()) - 2);
        sim.train(50, 5ms);
        sim.at(std::chrono::microseconds(100000 + random() % 300000), [&sim, side] {
            for (std::size_t a = 0; a < sim.size(); ++a)
                for (std::size_t b = a + 1; b < sim.size(); ++b)
                    if (((side >> a) & 1U) != ((side >> b) & 1U)) sim.set_link(a, b, LinkState::kClosed);
        });
        ASSERT_TRUE(has_ended(sim, 60s)) << sim.text();
        std::map<std::pair<GroupNumber, std::uint64_t>, std::set<Step>> committed;
        for (std::size_t node = 0; node < sim.size(); ++node)
            for (const auto& entry : sim.node(node).committed)
                committed[{entry.first, (side >> node) & 1U}].insert(entry.second);
        for (const auto& entry : committed) EXPECT_EQ(entry.second.size(), 1U) << sim.text();
        expect_kept(sim);
    });
}

/// One link breaks for good, so two nodes see different networks: all still end with one verdict, since each pair that
/// can talk agrees.
TEST_P(Seeds, one_broken_link_ends_with_one_verdict_for_all) {
    for_seeds(GetParam(), [](std::uint64_t seed) {
        Sim sim(random_options(seed));
        if (sim.size() < 3) return;
        std::mt19937_64 random(seed);
        const std::size_t a = random() % sim.size();
        const std::size_t b = (a + 1 + random() % (sim.size() - 1)) % sim.size();
        sim.train(50, 5ms);
        sim.at(std::chrono::microseconds(100000 + random() % 300000),
               [&sim, a, b] { sim.set_link(a, b, LinkState::kClosed); });
        ASSERT_TRUE(has_ended(sim, 60s)) << sim.text();
        std::map<GroupNumber, std::set<Step>> committed;
        for (std::size_t node = 0; node < sim.size(); ++node)
            for (const auto& entry : sim.node(node).committed) committed[entry.first].insert(entry.second);
        for (const auto& entry : committed) EXPECT_EQ(entry.second.size(), 1U) << sim.text();
        expect_kept(sim);
    });
}

/// Frames vanish, links flap, nodes and ranks die, NaNs appear: the promises hold and everything ends.
TEST_P(Seeds, under_everything_at_once_the_promises_hold) {
    for_seeds(GetParam(), [](std::uint64_t seed) {
        auto options = random_options(seed);
        std::mt19937_64 random(seed + 5);
        options.lose = random() % 2 == 0 ? 0.02 : 0;
        options.spec.non_finite_policy = static_cast<std::uint8_t>(random() % 3);
        Sim sim(options);
        sim.train(12, 20ms);
        for (int nan = 0; nan < 3; ++nan)
            sim.make_non_finite(static_cast<Rank>(random() % options.spec.world_size),
                                static_cast<TensorNumber>(random() % options.spec.tensors.size()), 1 + random() % 12);
        for (int cut = 0; cut < 3 && sim.size() > 1; ++cut) {
            const std::size_t a = random() % sim.size();
            const std::size_t b = (a + 1 + random() % (sim.size() - 1)) % sim.size();
            const auto start = std::chrono::milliseconds(random() % 500);
            sim.at(start, [&sim, a, b] { sim.set_link(a, b, LinkState::kClosed); });
            if (random() % 3 != 0)
                sim.at(start + std::chrono::milliseconds(1 + random() % 6000), [&sim, a, b] {
                    if (sim.node(a).is_alive && sim.node(b).is_alive) sim.set_link(a, b, LinkState::kUp);
                });
        }
        if (random() % 3 == 0) {
            const std::size_t victim = random() % sim.size();
            sim.at(std::chrono::milliseconds(random() % 400), [&sim, victim] { sim.kill(victim); });
        }
        if (random() % 3 == 0) {
            const auto rank = static_cast<Rank>(random() % options.spec.world_size);
            sim.at(std::chrono::milliseconds(100 + random() % 400), [&sim, rank] { sim.leave(rank, false); });
        }
        ASSERT_TRUE(has_ended(sim, 120s)) << sim.text();
        expect_kept(sim);
    });
}
INSTANTIATE_TEST_SUITE_P(Promises, Seeds, testing::Range<std::uint64_t>(0, 10));

}  // namespace
}  // namespace gradsieve::exchange

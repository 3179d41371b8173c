// The simulation of `./dev bench scaling`: what its model of links says of a few frames, and that whole jobs come out
// as arithmetic says where arithmetic can.
#include "bench/scaling/simulation.hpp"

#include <gtest/gtest.h>

namespace gradsieve::scaling {
namespace {

using namespace std::chrono_literals;

double milliseconds(TimePoint from, TimePoint to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
}

/// Frames of 1,000 bytes that are a millisecond on a link of 8 Mbit/s.
struct Link {
    Agenda agenda;
    NetworkModel network{agenda, 3, {8e6, 2ms}};
    TimePoint began = agenda.now();
    std::vector<std::pair<int, double>> arrived;  ///< name, milliseconds

    void send(int name, std::size_t from, std::size_t to, bool is_bulk) {
        network.send(from, to, is_bulk, 1000,
                     [this, name] { arrived.emplace_back(name, milliseconds(began, agenda.now())); });
    }
    void run() {
        while (agenda.run_next()) {}
    }
};
using Arrivals = std::vector<std::pair<int, double>>;

TEST(NetworkModel, A_frame_takes_its_bytes_and_the_latency) {
    Link link;
    link.send(1, 0, 1, true);
    link.run();
    EXPECT_EQ(link.arrived, (Arrivals{{1, 3.0}}));
    EXPECT_EQ(link.network.sent(0).bytes, 1000);
    EXPECT_EQ(link.network.sent(0).frames, 1U);
    EXPECT_EQ(link.network.sent(1).frames, 0U);
}
TEST(NetworkModel, Frames_of_one_sender_leave_one_after_the_other_and_control_first) {
    Link link;
    link.send(1, 0, 1, true);
    link.send(2, 0, 2, true);
    link.send(3, 0, 1, false);
    link.run();
    EXPECT_EQ(link.arrived, (Arrivals{{1, 3.0}, {3, 4.0}, {2, 5.0}}));
}
TEST(NetworkModel, Receivers_of_bulk_frames_take_turns_from_the_senders_neighbour_on) {
    Link link;
    link.send(1, 1, 0, true);  // leaves at once
    for (const int name : {2, 3}) link.send(name, 1, 0, true);
    for (const int name : {4, 5}) link.send(name, 1, 2, true);
    link.run();
    EXPECT_EQ(link.arrived, (Arrivals{{1, 3.0}, {4, 4.0}, {2, 5.0}, {5, 6.0}, {3, 7.0}}));
}
TEST(NetworkModel, Frames_of_two_senders_share_their_receivers_rate) {
    Link link;
    link.send(1, 0, 2, true);
    link.send(2, 1, 2, true);
    link.run();
    EXPECT_EQ(link.arrived, (Arrivals{{1, 3.0}, {2, 4.0}}));
}
TEST(NetworkModel, Both_directions_are_used_at_once) {
    Link link;
    link.send(1, 0, 1, true);
    link.send(2, 1, 0, true);
    link.run();
    EXPECT_EQ(link.arrived, (Arrivals{{1, 3.0}, {2, 3.0}}));
}
TEST(WorkerModel, Work_waits_for_the_first_core_that_is_free) {
    WorkerModel workers(2);
    const TimePoint now(1s);
    EXPECT_EQ(workers.done_at(now, 3), now + 3s);
    EXPECT_EQ(workers.done_at(now, 1), now + 1s);
    EXPECT_EQ(workers.done_at(now, 1), now + 2s);
    EXPECT_EQ(workers.done_at(now + 10s, 1), now + 11s);
}

/// A quarter of a byte for each element, on a link on which one payload takes 0.84 s: everything else is small beside
/// it.
SimulationOptions slow_link(std::size_t nodes, bool is_sharded) {
    SimulationOptions options;
    options.nodes = nodes;
    options.tensors.assign(4, 2 * kChunkElements);
    options.is_sharded = is_sharded;
    options.codec = options.down = {0.25, 1e-10, 1e-10};
    options.link = {20e6, 50us};
    options.steps = 3;
    options.scale = 16;
    return options;
}
constexpr double kPayload = 0.25 * 8 * static_cast<double>(kChunkElements);

TEST(Simulation, By_gather_every_node_sends_its_payload_to_every_other_one) {
    for (const std::size_t nodes : {2U, 3U, 5U}) {
        const auto found = Simulation(slow_link(nodes, false)).run();
        const double expected = static_cast<double>(nodes - 1) * kPayload;
        EXPECT_EQ(found.payload_bytes, kPayload);
        EXPECT_GT(found.sent_bytes_mean, expected);
        EXPECT_LT(found.sent_bytes_mean, 1.06 * expected) << "4.6 % are headers of full segments";
        EXPECT_NEAR(found.step_median_s, 8 * found.sent_bytes_mean / 20e6, 0.1 * found.step_median_s) << nodes;
        EXPECT_NEAR(found.retained_bytes, static_cast<double>(nodes) * kPayload, 0.01 * kPayload);
    }
}
TEST(Simulation, By_the_sharded_plan_it_sends_two_payloads_however_many_nodes_there_are) {
    for (const std::size_t nodes : {2U, 4U, 8U}) {
        const auto found = Simulation(slow_link(nodes, true)).run();
        const double share = static_cast<double>(nodes - 1) / static_cast<double>(nodes);
        EXPECT_GT(found.sent_bytes_mean, 2 * share * kPayload);
        EXPECT_LT(found.sent_bytes_mean, 2.1 * kPayload * share * 1.05);
        EXPECT_LT(found.sent_bytes_most, 1.05 * found.sent_bytes_mean) << "8 chunks: as many for each node";
    }
    const auto found = Simulation(slow_link(16, true)).run();
    EXPECT_GT(found.sent_bytes_most, 1.3 * found.sent_bytes_mean) << "half of the nodes own no chunk";
}
TEST(Simulation, Times_are_those_of_the_cost_model) {
    for (const bool is_sharded : {false, true}) {
        auto options = slow_link(4, is_sharded);
        options.step_seconds = 1;
        options.backward_share = 0.5;
        const auto found = Simulation(options).run();
        const exchange::StepFacts step{8 * kChunkElements, 4, 1, 0.5};
        const exchange::LinkFacts link{20e6 / bytes_on_the_wire(1e6) * 1e6, 50e-6};
        const auto cost = is_sharded ? exchange::sharded_cost(step, link, options.codec, options.down)
                                     : exchange::gather_cost(step, link, options.codec);
        EXPECT_NEAR(found.step_median_s, cost.step_seconds, 0.15 * cost.step_seconds) << is_sharded;
    }
}
TEST(Simulation, With_fewer_chunks_than_nodes_it_takes_what_the_cost_model_says) {
    const auto options = slow_link(32, true);
    const exchange::LinkFacts link{20e6 / bytes_on_the_wire(1e6) * 1e6, 50e-6};
    const auto cost = exchange::sharded_cost({8 * kChunkElements, 32, 1e-6, 0}, link, options.codec, options.down);
    EXPECT_NEAR(Simulation(options).run().step_median_s, cost.step_seconds, 0.2 * cost.step_seconds);
}
TEST(Simulation, A_straggler_delays_everybody_by_its_time) {
    auto options = slow_link(4, false);
    const auto without = Simulation(options).run();
    options.straggler_seconds = 5;
    const auto with = Simulation(options).run();
    EXPECT_GT(with.step_median_s, 5);
    EXPECT_LT(with.step_median_s, 5 + without.step_median_s) << "others' payloads are there by then";
}
TEST(Simulation, Broken_connections_delay_steps_and_lose_none) {
    for (const bool is_sharded : {false, true}) {
        auto options = slow_link(4, is_sharded);
        options.steps = 20;
        const auto without = Simulation(options).run();
        options.breaks = 0.01;
        const auto with = Simulation(options).run();
        EXPECT_EQ(without.broken_links, 0U);
        EXPECT_GT(with.broken_links, 3U);
        EXPECT_GT(with.step_longest_s, without.step_longest_s);
        EXPECT_GT(with.sent_bytes_mean, without.sent_bytes_mean) << "what was lost is sent again";
    }
}
TEST(Simulation, Shared_cores_code_for_all_nodes_in_turn) {
    auto options = slow_link(4, false);
    options.codec.encode_seconds_per_element = 1e-6;  // 8.4 s of one core
    options.link.bits_per_second = 1e12;
    const auto alone = Simulation(options).run();
    options.are_cores_shared = true;
    const auto together = Simulation(options).run();
    EXPECT_NEAR(together.step_median_s, 4 * alone.step_median_s, 0.1 * together.step_median_s);
}
TEST(Simulation, The_scale_of_payloads_in_memory_changes_little) {
    auto options = slow_link(3, true);
    options.scale = 1;
    const auto whole = Simulation(options).run();
    options.scale = 64;
    const auto scaled = Simulation(options).run();
    EXPECT_NEAR(scaled.sent_bytes_mean, whole.sent_bytes_mean, 0.005 * whole.sent_bytes_mean);
    EXPECT_NEAR(scaled.step_median_s, whole.step_median_s, 0.02 * whole.step_median_s);
    EXPECT_NEAR(scaled.retained_bytes, whole.retained_bytes, 0.005 * whole.retained_bytes);
}
TEST(Simulation, The_same_seed_gives_the_same_figures) {
    auto options = slow_link(5, true);
    options.breaks = 0.005;
    options.straggler_seconds = 0.1;
    const auto first = Simulation(options).run();
    const auto second = Simulation(options).run();
    EXPECT_EQ(first.step_median_s, second.step_median_s);
    EXPECT_EQ(first.sent_bytes_most, second.sent_bytes_most);
    EXPECT_EQ(first.broken_links, second.broken_links);
}

}  // namespace
}  // namespace gradsieve::scaling

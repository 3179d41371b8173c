// A job that goes on from a step that somebody named, as a checkpoint does: all nodes from it, or none.
#include "exchange/formation.hpp"

#include "tests/exchange/two_nodes.hpp"

#include <gtest/gtest.h>

namespace gradsieve::exchange {
namespace {

const std::vector<Rank>& ranks_of(std::size_t node) {
    static const std::vector<Rank> low{0, 1}, high{2, 3};
    return node == 0 ? low : high;
}

TEST(NamedStep, All_go_on_from_it_though_they_kept_newer_ones) {
    Sim sim(two_nodes());
    for (std::size_t node = 0; node < 2; ++node)
        sim.kept[node] = {.ranks = ranks_of(node),
                          .steps = {{.steps = {137, 136}}},
                          .named = {{.group = 0, .step = 100, .ranks = ranks_of(node)}},
                          .wanted = {100}};
    sim.attach_all();
    for (std::size_t node = 0; node < 2; ++node) {
        ASSERT_NE(start_of(sim, node), nullptr) << sim.text();
        EXPECT_EQ(start_of(sim, node)->first_steps, std::vector<Step>{101});
        EXPECT_EQ(start_of(sim, node)->named_steps, std::vector<Step>{100});
    }
}
TEST(NamedStep, One_node_names_it_and_the_others_take_it_over) {
    for (std::size_t naming = 0; naming < 2; ++naming) {
        Sim sim(two_nodes(2));
        for (std::size_t node = 0; node < 2; ++node) {
            sim.kept[node].named = {{.group = 1, .step = 100, .ranks = ranks_of(node)}};
            sim.kept[node].steps.resize(2);
        }
        sim.kept[naming].wanted = {0, 100};
        sim.attach_all();
        sim.run_quiet();
        for (std::size_t node = 0; node < 2; ++node) {
            ASSERT_NE(start_of(sim, node), nullptr) << sim.text();
            EXPECT_EQ(start_of(sim, node)->first_steps, (std::vector<Step>{1, 101}));
            EXPECT_EQ(start_of(sim, node)->named_steps, (std::vector<Step>{0, 100}));
        }
    }
}
TEST(NamedStep, Pinned_ones_are_not_taken_unless_somebody_names_them) {
    Sim sim(two_nodes());
    for (std::size_t node = 0; node < 2; ++node)
        sim.kept[node].named = {{.group = 0, .step = 100, .ranks = ranks_of(node)}};
    sim.attach_all();
    for (std::size_t node = 0; node < 2; ++node) EXPECT_EQ(start_of(sim, node)->first_steps, std::vector<Step>{1});
}
TEST(NamedStep, A_node_without_it_is_named_with_what_it_has_and_nobody_starts) {
    for (std::size_t lacking = 0; lacking < 2; ++lacking) {
        Sim sim(two_nodes());
        for (std::size_t node = 0; node < 2; ++node) {
            sim.kept[node] = {.ranks = ranks_of(node), .steps = {{.steps = {90}}}, .wanted = {100}};
            sim.kept[node].named = {
                {.group = 0, .step = node == lacking ? Step{80} : Step{100}, .ranks = ranks_of(node)}};
        }
        sim.attach_all();
        sim.run_quiet();
        const auto name = std::string("node ") + static_cast<char>('a' + lacking);
        for (std::size_t node = 0; node < 2; ++node) {
            EXPECT_EQ(start_of(sim, node), nullptr);
            ASSERT_TRUE(sim.node(node).end) << sim.text();
            EXPECT_EQ(sim.node(node).end->code(), StatusCode::kNotFound);
            EXPECT_TRUE(has(sim.node(node).end->text(),
                            "step 100 is named to go on from, and " + name + " has no snapshot of it"))
                << sim.node(node).end->text();
            EXPECT_TRUE(has(sim.node(node).end->text(), "it has step 90, 80")) << sim.node(node).end->text();
        }
    }
}
TEST(NamedStep, Of_two_runs_it_is_refused_with_both_nodes_where_the_codec_keeps_epochs) {
    Sim sim(two_nodes());
    for (std::size_t node = 0; node < 2; ++node)
        sim.kept[node] = {
            .ranks = ranks_of(node),
            .steps = {{.steps = {100, 99}, .epochs = {7, 7}}},  // in memory: not what is named where a pin is there
            .named = {{.group = 0, .step = 100, .ranks = ranks_of(node), .epoch = 5 + node}},
            .wanted = {100}};
    sim.attach_all();
    sim.run_quiet();
    for (std::size_t node = 0; node < 2; ++node) {
        EXPECT_EQ(start_of(sim, node), nullptr);
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kFailedPrecondition);
        EXPECT_TRUE(
            has(sim.node(node).end->text(), "what node b has of it is of another run than what node a has: with delta"))
            << sim.node(node).end->text();
    }
}
TEST(NamedStep, Of_one_run_it_is_gone_on_from_where_the_codec_keeps_epochs) {
    Sim sim(two_nodes());
    for (std::size_t node = 0; node < 2; ++node)
        sim.kept[node] = {.ranks = ranks_of(node),
                          .steps = {{.steps = {100, 99}, .epochs = {6 + node, 6}}},
                          .named = {{.group = 0, .step = 100, .ranks = ranks_of(node), .epoch = 5}},
                          .wanted = {100}};
    sim.attach_all();
    for (std::size_t node = 0; node < 2; ++node) {
        ASSERT_NE(start_of(sim, node), nullptr) << sim.text();
        EXPECT_EQ(start_of(sim, node)->first_steps, std::vector<Step>{101});
    }
}
TEST(NamedStep, Of_other_ranks_it_does_not_count) {
    Sim sim(two_nodes());
    for (std::size_t node = 0; node < 2; ++node) {
        sim.kept[node].wanted = {100};
        sim.kept[node].steps.resize(1);
        sim.kept[node].named = {{.group = 0, .step = 100, .ranks = ranks_of(0)}};
    }
    sim.attach_all();
    sim.run_quiet();
    ASSERT_TRUE(sim.node(0).end);
    EXPECT_TRUE(
        has(sim.node(0).end->text(), "node b has no snapshot of it for the ranks that attached there: it has none"))
        << sim.node(0).end->text();
}
TEST(NamedStep, Two_names_for_one_group_are_a_mismatch) {
    Sim sim(two_nodes());
    for (std::size_t node = 0; node < 2; ++node) sim.kept[node].wanted = {100 + node};
    sim.attach_all();
    sim.run_quiet();
    for (std::size_t node = 0; node < 2; ++node) {
        ASSERT_TRUE(sim.node(node).end);
        EXPECT_EQ(sim.node(node).end->code(), StatusCode::kMismatch);
        EXPECT_TRUE(has(sim.node(node).end->text(), "named 100 on node a, 101 on node b"))
            << sim.node(node).end->text();
    }
}
TEST(NamedStep, A_group_without_state_goes_on_from_any_step) {
    Sim sim(two_nodes());
    for (std::size_t node = 0; node < 2; ++node) {
        sim.kept[node].wanted = {41};
        sim.kept[node].is_stateless = {true};
    }
    sim.attach_all();
    EXPECT_EQ(start_of(sim, 1)->first_steps, std::vector<Step>{42});
}

}  // namespace
}  // namespace gradsieve::exchange

// Which step a job goes on from when nodes kept state of an earlier life.
#include "tests/exchange/two_nodes.hpp"

#include <gtest/gtest.h>

namespace gradsieve::exchange {
namespace {

using namespace std::chrono_literals;

std::vector<Step> first_steps(Sim& sim, std::size_t node) {
    const auto* start = start_of(sim, node);
    return start == nullptr ? std::vector<Step>{} : start->first_steps;
}

TEST(KeptState, Both_nodes_at_one_step_go_on_after_it) {
    Sim sim(two_nodes());
    sim.kept[0] = {.ranks = {0, 1}, .steps = {{.steps = {7, 6}}}};
    sim.kept[1] = {.ranks = {2, 3}, .steps = {{.steps = {7, 6}}}};
    sim.attach_all();
    for (std::size_t node = 0; node < 2; ++node) {
        EXPECT_EQ(first_steps(sim, node), std::vector<Step>{8}) << sim.text();
        EXPECT_EQ(start_of(sim, node)->lost_reasons, std::vector<std::string>{""});
        EXPECT_EQ(sim.node(node).machine->snapshot(sim.now()).committed_steps, std::vector<Step>{7});
    }
}
TEST(KeptState, A_node_that_is_a_step_ahead_goes_back_whichever_node_it_is) {
    for (const std::size_t ahead : {0U, 1U}) {
        Sim sim(two_nodes());
        for (std::size_t node = 0; node < 2; ++node) {
            const std::vector<Rank> ranks = node == 0 ? std::vector<Rank>{0, 1} : std::vector<Rank>{2, 3};
            const auto newest = node == ahead ? Step{12} : Step{11};
            sim.kept[node] = {.ranks = ranks, .steps = {{.steps = {newest, newest - 1}}}};
        }
        sim.attach_all();
        EXPECT_EQ(first_steps(sim, 0), std::vector<Step>{12});
        EXPECT_EQ(first_steps(sim, 1), std::vector<Step>{12});
    }
}
TEST(KeptState, Steps_between_may_have_been_aborted) {
    Sim sim(two_nodes());
    sim.kept[0] = {.ranks = {0, 1}, .steps = {{.steps = {12, 8}}}};
    sim.kept[1] = {.ranks = {2, 3}, .steps = {{.steps = {8, 7}}}};
    sim.attach_all();
    EXPECT_EQ(first_steps(sim, 1), std::vector<Step>{9});
}
TEST(KeptState, Snapshots_that_both_have_win_over_newer_steps_of_one) {
    Sim sim(two_nodes(2));
    sim.kept[0] = {.ranks = {0, 1}, .steps = {{.steps = {137, 136, 100, 50}}, {.steps = {3}}}};
    sim.kept[1] = {.ranks = {2, 3}, .steps = {{.steps = {100, 50}}, {.steps = {3, 2}}}};
    sim.attach_all();
    EXPECT_EQ(first_steps(sim, 0), (std::vector<Step>{101, 4}));
    EXPECT_EQ(first_steps(sim, 1), (std::vector<Step>{101, 4}));
}
TEST(KeptState, Epochs_decide_where_the_codec_keeps_them) {
    struct Case {
        std::vector<Epoch> low, high;
        Step first;
    };
    for (const auto& [low, high, first] : std::vector<Case>{{{5, 4, 3}, {5, 4, 3}, 8},
                                                            {{6, 4, 3}, {5, 4, 3}, 7},
                                                            {{6, 5, 3}, {5, 4, 3}, 6},
                                                            {{6, 5, 4}, {5, 4, 3}, 1},
                                                            {{5, 4, 3}, {}, 1},
                                                            {{}, {}, 8}}) {
        Sim sim(two_nodes());
        sim.kept[0] = {.ranks = {0, 1}, .steps = {{.steps = {7, 6, 5}, .epochs = low}}};
        sim.kept[1] = {.ranks = {2, 3}, .steps = {{.steps = {7, 6, 5}, .epochs = high}}};
        sim.attach_all();
        for (std::size_t node = 0; node < 2; ++node) {
            EXPECT_EQ(first_steps(sim, node), std::vector<Step>{first}) << sim.text();
            const auto reason = start_of(sim, node)->lost_reasons.at(0);
            EXPECT_EQ(reason.empty(), first > 1) << reason;
            if (first == 1) {
                EXPECT_NE(reason.find("up to step 7 of another run, and with delta"), std::string::npos) << reason;
            }
        }
    }
}
TEST(KeptState, Steps_with_epochs_are_kept_in_order) {
    KeptSteps kept{.steps = {9, 5}};
    kept.add(7, 70);
    kept.add(12, 120);
    kept.add(9, 90);  // there already
    EXPECT_EQ(kept.steps, (std::vector<Step>{12, 9, 7, 5}));
    EXPECT_EQ(kept.epoch_of(12), 120U);
    EXPECT_EQ(kept.epoch_of(9), 0U);
    EXPECT_EQ(kept.epoch_of(7), 70U);
    EXPECT_TRUE(kept.has(7, 70) && !kept.has(7, 0) && kept.has(5, 0) && !kept.has(6, 0));
    kept.remove(9);
    kept.remove(8);
    EXPECT_EQ(kept.steps, (std::vector<Step>{12, 7, 5}));
    EXPECT_EQ(kept.epoch_of(7), 70U);
}
TEST(KeptState, A_node_without_any_lets_all_begin_anew_and_the_others_say_why) {
    Sim sim(two_nodes());
    sim.kept[0] = {.ranks = {0, 1}, .steps = {{.steps = {7, 6}}}};
    sim.attach_all();
    EXPECT_EQ(first_steps(sim, 0), std::vector<Step>{1});
    EXPECT_EQ(first_steps(sim, 1), std::vector<Step>{1});
    EXPECT_TRUE(has(start_of(sim, 0)->lost_reasons[0], "up to step 7, node b has none"))
        << start_of(sim, 0)->lost_reasons[0];
    EXPECT_EQ(start_of(sim, 1)->lost_reasons[0], "") << "it had nothing to lose";
}
TEST(KeptState, Nodes_too_far_apart_begin_anew_naming_both_steps) {
    Sim sim(two_nodes());
    sim.kept[0] = {.ranks = {0, 1}, .steps = {{.steps = {7, 6}}}};
    sim.kept[1] = {.ranks = {2, 3}, .steps = {{.steps = {100, 99}}}};
    sim.attach_all();
    EXPECT_EQ(first_steps(sim, 1), std::vector<Step>{1});
    EXPECT_TRUE(has(start_of(sim, 0)->lost_reasons[0], "up to step 7, node b up to step 100"));
    EXPECT_TRUE(has(start_of(sim, 1)->lost_reasons[0], "up to step 100, node a up to step 7"));
}
TEST(KeptState, Other_ranks_on_the_node_do_not_go_on_from_it) {
    Sim sim(two_nodes());
    sim.kept[0] = {.ranks = {2, 3}, .steps = {{.steps = {7, 6}}}};
    sim.kept[1] = {.ranks = {2, 3}, .steps = {{.steps = {7, 6}}}};
    sim.attach_all();
    EXPECT_EQ(first_steps(sim, 0), std::vector<Step>{1});
    EXPECT_TRUE(has(start_of(sim, 0)->lost_reasons[0], "for other ranks")) << start_of(sim, 0)->lost_reasons[0];
}
TEST(KeptState, Each_group_goes_on_from_its_own_step) {
    Sim sim(two_nodes(2));
    sim.kept[0] = {.ranks = {0, 1}, .steps = {{.steps = {7, 6}}, {.steps = {3, 2}}}};
    sim.kept[1] = {.ranks = {2, 3}, .steps = {{.steps = {7, 6}}, {.steps = {2, 1}}}};
    sim.attach_all();
    EXPECT_EQ(first_steps(sim, 1), (std::vector<Step>{8, 3}));
}
TEST(KeptState, The_job_runs_on_from_there_and_keeps_its_promises) {
    Sim sim(two_nodes());
    sim.kept[0] = {.ranks = {0, 1}, .steps = {{.steps = {1}}}};
    sim.kept[1] = {.ranks = {2, 3}, .steps = {{.steps = {1}}}};
    sim.attach_all();
    EXPECT_EQ(sim.submit(0, 0, 1).code(), StatusCode::kInvalidArgument) << "step 1 is over";
    for (Step step = 2; step <= 4; ++step) {
        for (std::size_t node = 0; node < 2; ++node) sim.node(node).done[0] = step - 1;  // the sim counts from 1
        sim.submit_all(step);
        sim.run_quiet();
    }
    EXPECT_EQ(sim.node(0).machine->snapshot(sim.now()).committed_steps, std::vector<Step>{4}) << sim.text();
    EXPECT_EQ(sim.node(1).machine->snapshot(sim.now()).committed_steps, std::vector<Step>{4}) << sim.text();
}
TEST(KeptState, A_start_from_a_step_that_the_node_never_announced_is_refused) {
    Sim sim({.ranks = {{0}, {1}}, .spec = make_spec(2, 1, 1)});
    sim.kept[1] = {.ranks = {1}, .steps = {{.steps = {7, 6}}}};
    ASSERT_TRUE(sim.attach(1).is_ok());
    const auto own_nonce = [&] {
        Prepared seen;
        for (const auto& action : sim.node(1).machine->take_actions())
            if (const auto* frame = std::get_if<SendFrame>(&action))
                if (auto parsed = parse_prepared(frame->parts[0].bytes()); parsed.is_ok()) seen = std::move(*parsed);
        return seen.nonce;
    };
    sim.node(1).machine->on_time(sim.now() + 1s);
    const auto nonce = own_nonce();
    const auto spec = build_job_spec(make_spec(2, 1, 1));
    const auto digest = tensor_id({reinterpret_cast<const char*>(spec.data()), spec.size()});
    for (const Step first : {Step{0}, Step{9}, Step{6}, ~Step{0}}) {
        const Start forged{
            .spec_digest = digest,
            .members = {{.peer = 0, .nonce = 5, .ranks = {0}}, {.peer = 1, .nonce = nonce, .ranks = {1}}},
            .first_steps = {first}};
        sim.node(1).machine->on_frame(0, static_cast<std::uint16_t>(FrameType::kStart), 77, 0,
                                      SharedView::take(build_message(job_hash(sim.key()), forged)), sim.now());
        const auto shot = sim.node(1).machine->snapshot(sim.now());
        EXPECT_EQ(shot.phase, "forming") << first;
        EXPECT_TRUE(has(shot.last_refusal, "has no state for")) << shot.last_refusal;
    }
}
TEST(KeptState, Absurd_steps_in_an_announcement_are_refused) {
    const auto parse = [](const std::vector<Step>& steps) {
        auto spec = make_spec(2, 1, 1);
        Prepared message{.key = {"j", "r"},
                         .nonce = 1,
                         .sequence = 1,
                         .ranks = {1},
                         .next_steps = steps,
                         .kept_steps = {},
                         .spec = spec};
        return parse_prepared(build_message(1, message)).status().code();
    };
    EXPECT_EQ(parse({1}), StatusCode::kOk);
    EXPECT_EQ(parse({1, 7, 6}), StatusCode::kOk);
    EXPECT_EQ(parse({1, 0, 0}), StatusCode::kOk);
    EXPECT_EQ(parse({1, 9}), StatusCode::kOk);
    EXPECT_EQ(parse({1, 9, 8, 7, 6, 5, 4, 3, 2}), StatusCode::kOk);
    EXPECT_EQ(parse({1, 10, 9, 8, 7, 6, 5, 4, 3, 2}), StatusCode::kCorrupt) << "more than eight";
    for (const auto& steps : std::vector<std::vector<Step>>{
             {}, {1, 7, 6, 7}, {1, 6, 6}, {1, 6, 7}, {1, 0, 3}, {1, ~Step{0}, 3}, {1, (Step{1} << 62U) + 1, 3}})
        EXPECT_EQ(parse(steps), StatusCode::kCorrupt) << steps.size();
}

}  // namespace
}  // namespace gradsieve::exchange

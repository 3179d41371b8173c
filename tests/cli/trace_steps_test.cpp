// Events put together into phases: against times laid down by hand, and properties over random ones.
#include "cli/trace_steps.hpp"

#include "tests/cli/traced_reply.hpp"

#include <gtest/gtest.h>

#include <set>

namespace gradsieve::cli {
namespace {

std::vector<Phase> phases_of(const TracedTensor& tensor) {
    std::vector<Phase> phases;
    for (const auto& span : tensor.phases) phases.push_back(span.phase);
    return phases;
}

TEST(TraceSteps, Whole_steps_have_all_phases_of_all_tensors_without_gap_or_overlap) {
    constexpr std::uint32_t kSeed = 20'261'129;
    SCOPED_TRACE("seed " + std::to_string(kSeed));
    TracedReply made(kSeed);
    for (Step step = 5; step < 55; ++step) made.whole_step(step);
    const auto steps = put_together(made.finish());
    ASSERT_EQ(steps.size(), 50U);
    for (std::size_t place = 0; place < steps.size(); ++place) {
        const auto& step = steps[place];
        EXPECT_EQ(step.step, 5 + place);
        EXPECT_EQ(step.outcome, TracedStep::Outcome::kCommitted);
        ASSERT_EQ(step.tensors.size(), 2U);
        for (const auto& tensor : step.tensors) {
            EXPECT_EQ(
                phases_of(tensor),
                (std::vector<Phase>{Phase::kWaitForRanks, Phase::kWaitForAcks, Phase::kQueueToEncode, Phase::kEncode,
                                    Phase::kWaitForPeers, Phase::kQueueToDecode, Phase::kDecode, Phase::kHandBack}));
            EXPECT_LE(step.begin_ns, tensor.begin_ns());
            EXPECT_GE(step.end_ns, tensor.end_ns());
            for (std::size_t phase = 0; phase < tensor.phases.size(); ++phase) {
                EXPECT_FALSE(tensor.phases[phase].is_cut);
                EXPECT_GE(tensor.phases[phase].end_ns, tensor.phases[phase].begin_ns);
                if (phase > 0) {
                    EXPECT_EQ(tensor.phases[phase].begin_ns, tensor.phases[phase - 1].end_ns);
                }
            }
            EXPECT_EQ(tensor.hand_ins.size(), 2U);
            EXPECT_EQ(tensor.payload_bytes, 77U);
            EXPECT_EQ(tensor.last_peer, 1U);
            EXPECT_TRUE(tensor.missing_ranks.empty() && tensor.missing_peers.empty());
            for (const PeerIndex peer : {1U, 4U})
                for (const auto* passages : {&tensor.sends, &tensor.receives}) {
                    const auto& passage = passages->at(peer);
                    EXPECT_FALSE(passage.is_cut);
                    EXPECT_GE(passage.end_ns, passage.begin_ns);
                    EXPECT_GE(passage.begin_ns, step.begin_ns);
                }
        }
    }
    const auto figures = figures_of(steps);
    for (std::size_t phase = 0; phase < kPhaseCount; ++phase)
        EXPECT_EQ(figures[phase].count, phase == static_cast<std::size_t>(Phase::kNoAverage) ? 0U : 100U) << phase;
}
TEST(TraceSteps, Phases_have_the_lengths_of_their_events) {
    TracedReply made(1);
    made.reply.peers.clear();
    made.reply.ranks = {3, 9};
    auto at = [&](std::int64_t us) { made.now = made.reply.begin_ns + us * 1000; };
    using Kind = shm::TraceEventKind;
    at(10), made.add(Kind::kHandIn, 1, 2, 9);
    at(14), made.add(Kind::kHandIn, 1, 2, 3);
    at(15), made.add(Kind::kEncodeAsked, 1, 2, 0);
    at(17), made.add(Kind::kEncoded, 1, 2, 0, made.now + 20'000, 8);
    at(38), made.add(Kind::kDecodeAsked, 1, 2, 0);
    at(40), made.add(Kind::kDecoded, 1, 2, 0, made.now + 30'000);
    at(75), made.add(Kind::kHandedBack, 1, 2, 0);
    const auto steps = put_together(made.finish());
    ASSERT_EQ(steps.size(), 1U);
    std::vector<std::int64_t> lengths;
    for (const auto& span : steps[0].tensors.at(0).phases) lengths.push_back((span.end_ns - span.begin_ns) / 1000);
    EXPECT_EQ(lengths, (std::vector<std::int64_t>{4, 1, 2, 20, 3, 30, 5}));
    EXPECT_EQ(steps[0].outcome, TracedStep::Outcome::kOpen) << "its end was not seen";
    const auto figures = figures_of(steps);
    EXPECT_DOUBLE_EQ(figures[static_cast<std::size_t>(Phase::kEncode)].median_ms, 0.02);
    EXPECT_DOUBLE_EQ(figures[static_cast<std::size_t>(Phase::kDecode)].longest_ms, 0.03);
}
TEST(TraceSteps, A_step_that_hangs_shows_for_whom_it_waits) {
    TracedReply made(2);
    made.hand_in(0, 7, 1);
    made.hand_in(1, 7, 0);
    made.hand_in(1, 7, 1);
    made.encode(1, 7);
    made.receive(1, 7, 4);
    const auto& reply = made.finish();
    const auto steps = put_together(reply);
    ASSERT_EQ(steps.size(), 1U);
    EXPECT_EQ(steps[0].outcome, TracedStep::Outcome::kOpen);
    EXPECT_EQ(steps[0].end_ns, reply.end_ns);
    const auto& late_rank = steps[0].tensors.at(0);
    EXPECT_EQ(phases_of(late_rank), std::vector<Phase>{Phase::kWaitForRanks});
    EXPECT_TRUE(late_rank.phases[0].is_cut);
    EXPECT_EQ(late_rank.missing_ranks, std::vector<Rank>{0});
    const auto& late_peer = steps[0].tensors.at(1);
    EXPECT_EQ(late_peer.phases.back().phase, Phase::kWaitForPeers);
    EXPECT_TRUE(late_peer.phases.back().is_cut);
    EXPECT_EQ(late_peer.end_ns(), reply.end_ns);
    EXPECT_EQ(late_peer.missing_peers, std::vector<PeerIndex>{1});
    EXPECT_EQ(figures_of(steps)[static_cast<std::size_t>(Phase::kWaitForPeers)].count, 0U);
}
TEST(TraceSteps, A_failed_step_ends_where_the_ranks_were_told) {
    TracedReply made(3);
    made.hand_in(0, 7, 1);
    made.hand_in(0, 7, 0);
    made.encode(0, 7);
    made.hand_back(0, 7);
    const auto told = made.now;
    made.later();
    made.add(shm::TraceEventKind::kStepFailed, 0, 7, 0);
    const auto failed = made.now;
    const auto steps = put_together(made.finish());
    ASSERT_EQ(steps.size(), 1U);
    EXPECT_EQ(steps[0].outcome, TracedStep::Outcome::kFailed);
    EXPECT_EQ(steps[0].end_ns, failed);
    EXPECT_EQ(steps[0].tensors[0].phases.back().phase, Phase::kWaitForPeers);
    EXPECT_EQ(steps[0].tensors[0].end_ns(), told);
}
TEST(TraceSteps, An_average_that_a_policy_leaves_out_is_called_so) {
    TracedReply made(4);
    made.reply.peers.clear();
    made.hand_in(0, 7, 1);
    made.hand_in(0, 7, 0);
    made.encode(0, 7);
    made.hand_back(0, 7);
    const auto steps = put_together(made.finish());
    EXPECT_EQ(steps.at(0).tensors[0].phases.back().phase, Phase::kNoAverage);
}
TEST(TraceSteps, Any_events_at_all_are_put_together) {
    constexpr std::uint32_t kSeed = 7;
    SCOPED_TRACE("seed " + std::to_string(kSeed));
    TracedReply made(kSeed);
    for (int count = 0; count < 5000; ++count) {  // what a daemon of another release may say
        made.later();
        const auto kind = static_cast<shm::TraceEventKind>(1 + made.random() % 12);
        const bool names_group = kind >= shm::TraceEventKind::kStepCommitted;
        made.add(kind, names_group ? 0 : made.random() % 2, made.random() % 400, made.random() % 5,
                 made.now + made.random() % 9000 - 4500, made.random() % 50);
    }
    for (const auto& step : put_together(made.finish()))
        for (const auto& tensor : step.tensors) {
            ASSERT_FALSE(tensor.phases.empty());
            for (std::size_t phase = 0; phase < tensor.phases.size(); ++phase) {
                EXPECT_GE(tensor.phases[phase].end_ns, tensor.phases[phase].begin_ns);
                if (phase > 0) {
                    EXPECT_EQ(tensor.phases[phase].begin_ns, tensor.phases[phase - 1].end_ns);
                }
            }
            EXPECT_LE(step.begin_ns, tensor.begin_ns());
            EXPECT_GE(step.end_ns, tensor.end_ns());
        }
}
TEST(TraceSteps, Every_phase_has_a_name_of_its_own) {
    std::set<std::string_view> names;
    for (std::size_t phase = 0; phase < kPhaseCount; ++phase) names.insert(phase_name(static_cast<Phase>(phase)));
    EXPECT_EQ(names.size(), kPhaseCount);
    EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace gradsieve::cli

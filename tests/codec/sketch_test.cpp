// sketch: what it sends and keeps.
#include "codec/stages/sketch.hpp"

#include "codec/local_clip.hpp"
#include "codec/phase_memory.hpp"
#include "phase_loop.hpp"

#include <cfloat>
#include <cmath>

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kSeed = 31;

std::vector<float> noise(std::size_t elements, std::mt19937_64& random, double scale = 1) {
    std::normal_distribution<float> normal;
    std::vector<float> values(elements);
    for (float& value : values) value = static_cast<float>(scale) * normal(random);
    return values;
}
double square_sum(const std::vector<float>& values) {
    double square = 0;
    for (const float value : values) square += static_cast<double>(value) * static_cast<double>(value);
    return square;
}

TEST(Sketch, What_was_handed_in_is_sent_as_it_is_or_kept_as_it_is) {
    for (const char* codec :
         {"sketch(0.02)", "sketch(0.05, 1)", "sketch(0.01, 3, 200)", "compensate(gamma=0.5) | sketch(0.02)"}) {
        std::mt19937_64 random(kSeed);
        constexpr std::size_t kElements = 5003;
        constexpr std::size_t kNodes = 3;
        PhaseLoop loop(codec, kElements, kNodes);
        const auto gamma = static_cast<float>(loop.pipeline().front.gamma);
        const std::size_t kept = sketch_shape(loop.pipeline(), kElements).kept;
        for (int step = 0; step < 8; ++step) {
            std::vector<std::vector<float>> gradients, whole;
            for (std::size_t node = 0; node < kNodes; ++node) {
                gradients.push_back(noise(kElements, random));
                whole.push_back(loop.residual(node));
                for (std::size_t at = 0; at < kElements; ++at) whole[node][at] += gamma * gradients[node][at];
            }
            const auto outcome = loop.step(gradients);
            EXPECT_EQ(outcome.decoded[0].touched_elements, kept);
            std::size_t sent = 0;
            for (std::size_t at = 0; at < kElements; ++at) {
                const bool is_sent = loop.residual(0)[at] == 0;
                sent += is_sent ? 1 : 0;
                float mean = 0;
                for (std::size_t node = 0; node < kNodes; ++node) {
                    mean += (1.0F / kNodes) * whole[node][at];
                    ASSERT_EQ(loop.residual(node)[at], is_sent ? 0.0F : whole[node][at]) << codec << ' ' << at;
                }
                ASSERT_EQ(outcome.averages[0][at], is_sent ? mean : 0.0F) << codec << ' ' << at;
            }
            EXPECT_EQ(sent, kept);
            for (std::size_t node = 0; node < kNodes; ++node)
                EXPECT_LE(square_sum(loop.residual(node)), square_sum(whole[node])) << codec;
            for (std::size_t node = 1; node < kNodes; ++node) {
                EXPECT_TRUE(same_bits(outcome.averages[0], outcome.averages[node]));
                EXPECT_EQ(outcome.decoded[0].digest, outcome.decoded[node].digest);
            }
        }
    }
}
TEST(Sketch, Few_elements_come_back_whole_in_one_step) {
    std::mt19937_64 random(kSeed);
    std::vector<float> gradient(10'000);
    for (int at = 0; at < 40; ++at) gradient[random() % gradient.size()] = noise(1, random)[0];
    PhaseLoop loop("sketch(0.02)", gradient.size(), 2);
    const auto outcome = loop.step(gradient);
    EXPECT_TRUE(same_bits(outcome.averages[0], gradient));
    EXPECT_EQ(outcome.decoded[0].touched_elements, 200U) << "and zeros beside them";
    EXPECT_EQ(square_sum(loop.residual(0)), 0);
}
TEST(Sketch, Every_form_gives_the_same_bits) {
    for (const std::size_t elements : {1U, 63U, 1023U, 1025U, 20'001U})
        for (const char* codec : {"sketch(0.05, 1)", "sketch(0.1, 3)", "sketch(0.02)", "sketch(0.05, 7)",
                                  "sketch(0.01, 5, 100)", "sketch(0.01, 3, 3000)"}) {
            std::vector<PhaseLoop> loops;
            for (const auto form : supported_forms()) {
                loops.emplace_back(codec, elements, 2);
                loops.back().form = form;
            }
            std::mt19937_64 random(kSeed);
            for (int step = 0; step < 2; ++step) {
                const std::vector<std::vector<float>> gradients{noise(elements, random), noise(elements, random)};
                const auto expected = loops[0].step(gradients);
                for (std::size_t form = 1; form < loops.size(); ++form) {
                    const auto outcome = loops[form].step(gradients);
                    EXPECT_TRUE(same_bits(outcome.averages[0], expected.averages[0])) << codec << ' ' << elements;
                    EXPECT_EQ(outcome.decoded[0].digest, expected.decoded[0].digest);
                    for (std::size_t node = 0; node < 2; ++node)
                        EXPECT_TRUE(same_bits(loops[form].residual(node), loops[0].residual(node)));
                }
            }
        }
}
TEST(Sketch, A_node_that_sends_nothing_decodes_what_the_others_send) {
    std::mt19937_64 random(kSeed);
    PhaseLoop loop("sketch(0.02)", 6000, 1);
    PhaseMemory other(loop.pipeline(), 6000);
    std::vector<float> memory(6000);
    ResultTensor result(tensor_id("w"), memory.data(), 6000);
    const auto gradient = noise(6000, random);
    const auto views_of = [](const EncodeResult& encoded) {
        std::vector<ChunkView> views;
        for (const auto& chunk : encoded.chunks) views.push_back({chunk.chunk_index, chunk.bytes.view()});
        return views;
    };
    const PhaseStep at{1, tensor_id("w"), PhaseLoop::kSelectionSeed};
    const auto first = loop.encode(0, 0, gradient);
    ASSERT_TRUE(first.is_ok());
    const auto views = views_of(*first);
    const Contribution contributions[] = {{0.5F, views}};
    ASSERT_TRUE(decode_first_phase(at, contributions, loop.memory(0)).is_ok());
    ASSERT_TRUE(decode_first_phase(at, contributions, other).is_ok());
    const auto second = loop.encode(0, 1, gradient);
    ASSERT_TRUE(second.is_ok());
    const auto second_views = views_of(*second);
    const Contribution second_contributions[] = {{0.5F, second_views}};
    const auto decoded = decode_last_phase(1, second_contributions, other, result);
    ASSERT_TRUE(decoded.is_ok()) << decoded.status().to_string();
    std::vector<float> own(6000);
    ResultTensor own_result(tensor_id("w"), own.data(), 6000);
    EXPECT_EQ(decode_last_phase(1, second_contributions, loop.memory(0), own_result)->digest, decoded->digest);
    EXPECT_TRUE(same_bits(own, memory));
}
TEST(Sketch, A_choice_left_open_is_made_by_the_phase_that_needs_it) {
    std::mt19937_64 random(kSeed);
    PhaseLoop loop("sketch(0.02)", 6000, 2);
    PhaseMemory listening(loop.pipeline(), 6000);
    for (auto* memory : {&loop.memory(1), &listening}) memory->impl().sketch->leaves_choice = true;
    for (int step = 0; step < 3; ++step) {
        std::vector<std::vector<ChunkView>> views(2);
        std::vector<EncodeResult> encoded;
        const std::vector<std::vector<float>> gradients = {noise(6000, random), noise(6000, random)};
        for (std::size_t node = 0; node < 2; ++node) encoded.push_back(*loop.encode(node, 0, gradients[node]));
        for (std::size_t node = 0; node < 2; ++node)
            for (const auto& chunk : encoded[node].chunks)
                views[node].push_back({chunk.chunk_index, chunk.bytes.view()});
        const Contribution contributions[] = {{0.5F, views[0]}, {0.5F, views[1]}};
        ASSERT_TRUE(
            decode_first_phase({loop.next_step(), tensor_id("w"), PhaseLoop::kSelectionSeed}, contributions, listening)
                .is_ok());
        auto& open = *listening.impl().sketch;
        EXPECT_TRUE(open.is_choice_open);
        const auto outcome = loop.step(gradients);
        EXPECT_TRUE(same_bits(outcome.averages[0], outcome.averages[1]));
        EXPECT_EQ(outcome.decoded[0].digest, outcome.decoded[1].digest);
        open.close_choice();
        EXPECT_FALSE(open.is_choice_open);
        EXPECT_EQ(open.chosen, loop.memory(0).impl().sketch->chosen);
        EXPECT_EQ(open.chosen, loop.memory(1).impl().sketch->chosen);
    }
}
TEST(Sketch, Momentum_is_cleared_where_elements_are_sent) {
    std::mt19937_64 random(kSeed);
    PhaseLoop loop("momentum(0.5) | sketch(0.02)", 4000, 2);
    for (int step = 0; step < 4; ++step) {
        const auto outcome = loop.step({noise(4000, random), noise(4000, random)});
        std::size_t cleared = 0;
        for (std::size_t at = 0; at < 4000; ++at) {
            EXPECT_EQ(loop.momentum(1)[at] == 0, outcome.averages[0][at] != 0);
            cleared += loop.momentum(1)[at] == 0 ? 1 : 0;
        }
        EXPECT_EQ(cleared, 80U);
    }
}
TEST(Sketch, A_gradient_is_clipped_before_momentum_takes_it_in) {
    PhaseLoop clipped("momentum(0.5, clip=1) | sketch(0.05)", 900, 1);
    PhaseLoop scaled("momentum(0.5) | sketch(0.05)", 900, 1);
    const float factor = clip_factor(1, 1, 900 * 9.0);
    ASSERT_LT(factor, 0.02F);
    for (int step = 0; step < 3; ++step)
        EXPECT_EQ(clipped.step(std::vector<float>(900, 3.0F)).averages,
                  scaled.step(std::vector<float>(900, 3.0F * factor)).averages);
}
TEST(Sketch, Low_pass_and_rescaling_act_on_what_is_kept) {
    std::mt19937_64 random(kSeed);
    PhaseLoop loop("compensate(beta=0.5, lowpass=0.25) | sketch(0.02)", 2000, 1);
    loop.step(noise(2000, random));
    const auto before = loop.residual(0);
    loop.rescale = 4;
    const auto gradient = noise(2000, random);
    const auto outcome = loop.step(gradient);
    for (std::size_t at = 0; at < 2000; ++at) {
        const float whole = 0.5F * 4 * before[at] + gradient[at];
        const float left = outcome.averages[0][at] != 0 ? 0 : whole;
        ASSERT_FLOAT_EQ(loop.residual(0)[at], 0.75F * 4 * before[at] + 0.25F * left) << at;
    }
}
TEST(Sketch, Extreme_numbers_leave_finite_results) {
    for (const auto kind : {DataKind::kNearMaximum, DataKind::kSubnormal, DataKind::kWideRange, DataKind::kSignedZeros,
                            DataKind::kConstant, DataKind::kHeavyTailed})
        for (const std::size_t elements : {1U, 40U, 5000U}) {
            std::mt19937_64 random(kSeed);
            PhaseLoop loop("sketch(0.02)", elements, 2);
            const auto outcome = loop.step(make_gradient(kind, elements, random));
            for (const float value : outcome.averages[0])
                ASSERT_TRUE(std::isfinite(value) && !(value == 0.0F && std::signbit(value))) << data_kind_name(kind);
            for (const float value : loop.residual(0)) ASSERT_TRUE(std::isfinite(value)) << data_kind_name(kind);
        }
}
TEST(Sketch, One_element_is_sent_exactly_and_none_is_legal) {
    PhaseLoop one("sketch(0.01)", 1, 3);
    const auto outcome = one.step(std::vector<std::vector<float>>{{1.0F}, {2.0F}, {6.0F}});
    EXPECT_FLOAT_EQ(outcome.averages[2][0], 3.0F);
    EXPECT_EQ(one.residual(1)[0], 0.0F);
    PhaseLoop none("sketch(0.01)", 0, 2);
    const auto nothing = none.step(std::vector<std::vector<float>>(2));
    EXPECT_EQ(nothing.payload_bytes[0] + nothing.payload_bytes[1], 0U);
    EXPECT_EQ(nothing.decoded[0].touched_elements, 0U);
}
TEST(Sketch, Zeros_are_not_sent) {
    PhaseLoop loop("sketch(0.01)", 9000, 2);
    std::vector<float> zeros(9000);
    zeros[5] = -0.0F;
    const auto outcome = loop.step(zeros);
    EXPECT_EQ(outcome.payload_bytes[0] + outcome.payload_bytes[1], 0U);
    EXPECT_EQ(outcome.decoded[0].touched_elements, 0U);
    EXPECT_EQ(square_sum(outcome.averages[0]), 0);
}
TEST(Sketch, Opposite_gradients_choose_by_index) {
    std::mt19937_64 random(kSeed);
    const auto gradient = noise(3000, random);
    auto opposite = gradient;
    for (float& value : opposite) value = -value;
    PhaseLoop loop("sketch(0.01)", 3000, 2);
    const auto outcome = loop.step({gradient, opposite});
    EXPECT_EQ(square_sum(outcome.averages[0]), 0);
    EXPECT_EQ(outcome.decoded[0].touched_elements, 30U);
    for (std::size_t at = 0; at < 3000; ++at)
        ASSERT_EQ(loop.residual(0)[at], at < 30 ? 0.0F : gradient[at]) << "all estimates are zero";
}
TEST(Sketch, Numbers_that_are_not_finite_are_found_in_the_first_phase) {
    for (const auto kind : {DataKind::kNotANumber, DataKind::kInfinite}) {
        std::mt19937_64 random(kSeed);
        PhaseLoop loop("sketch(0.02)", 3000, 1);
        const auto encoded = loop.encode(0, 0, make_gradient(kind, 3000, random));
        ASSERT_TRUE(encoded.is_ok());
        EXPECT_TRUE(encoded->non_finite.has_value());
        EXPECT_TRUE(encoded->chunks.empty());
    }
}
TEST(Sketch, Payloads_are_cells_and_values_in_fp32) {
    std::mt19937_64 random(kSeed);
    PhaseLoop loop("sketch(0.02)", 7000, 1);
    const auto outcome = loop.step(noise(7000, random));
    EXPECT_EQ(outcome.payload_bytes[0], 2 + 4 * 5 * 140U);
    EXPECT_EQ(outcome.payload_bytes[1], 2 + 4 * 140U);
    EXPECT_EQ(outcome.kept_elements, 6 * 140U);
    EXPECT_EQ(phase_elements(loop.pipeline(), 7000, 0), 700U);
    EXPECT_EQ(phase_elements(loop.pipeline(), 7000, 1), 140U);
    EXPECT_EQ(kept_state_bytes(loop.pipeline(), 7000), 2 * 4 * 7000U);
}
TEST(Sketch, A_sketch_of_several_chunks_is_sent_in_chunks) {
    PhaseLoop loop("sketch(0.01, 3, 700000)", 3'000'000, 1);
    std::mt19937_64 random(kSeed);
    const auto gradient = noise(3'000'000, random);
    const auto outcome = loop.step(gradient);
    EXPECT_EQ(outcome.payload_bytes[0], 3 * 2 + 4 * 2'100'000U);
    EXPECT_EQ(outcome.decoded[0].touched_elements, 30'000U);
    for (std::size_t at = 0; at < gradient.size(); ++at)
        ASSERT_EQ(outcome.averages[0][at] + loop.residual(0)[at], gradient[at]) << at;
}
TEST(Sketch, Steps_that_only_add_up_send_nothing) {
    std::mt19937_64 random(kSeed);
    PhaseLoop loop("accumulate(2) | sketch(0.02)", 2000, 2);
    const auto gradient = noise(2000, random);
    const auto waiting = loop.step(gradient);
    EXPECT_EQ(waiting.payload_bytes[0] + waiting.payload_bytes[1], 0U);
    EXPECT_EQ(square_sum(waiting.averages[0]), 0);
    EXPECT_TRUE(same_bits(loop.residual(0), gradient));
    EXPECT_EQ(loop.step(gradient).decoded[1].touched_elements, 40U);
}
TEST(Sketch, Phases_out_of_order_are_refused) {
    std::mt19937_64 random(kSeed);
    const auto gradient = noise(900, random);
    PhaseLoop loop("sketch(0.05)", 900, 1);
    EXPECT_EQ(loop.encode(0, 1, gradient).status().code(), StatusCode::kInvalidArgument);
    ASSERT_TRUE(loop.encode(0, 0, gradient).is_ok());
    EXPECT_EQ(loop.encode(0, 1, gradient).status().code(), StatusCode::kInvalidArgument) << "not decoded yet";
    std::vector<float> memory(900);
    ResultTensor result(1, memory.data(), 900);
    EXPECT_EQ(decode_last_phase(1, {}, loop.memory(0), result).status().code(), StatusCode::kInvalidArgument);
}
TEST(Sketch, Hostile_payloads_are_refused_or_leave_finite_numbers) {
    std::mt19937_64 random(kSeed);
    PhaseLoop loop("sketch(0.05)", 2000, 1);
    ASSERT_TRUE(loop.encode(0, 0, noise(2000, random)).is_ok());
    std::vector<float> memory(2000);
    ResultTensor result(1, memory.data(), 2000);
    const auto decode = [&](std::size_t elements, float value, bool is_first) {
        const auto bytes = build_exact_chunk(std::vector<float>(elements, value));
        const ChunkView chunks[] = {{0, bytes}};
        const Contribution contributions[] = {{1.0F, chunks}};
        return is_first ? decode_first_phase({.step = 1}, contributions, loop.memory(0))
                        : decode_last_phase(1, contributions, loop.memory(0), result).status();
    };
    EXPECT_EQ(decode(499, 1, true).code(), StatusCode::kCorrupt) << "5 rows of 100 cells";
    EXPECT_EQ(decode(501, 1, true).code(), StatusCode::kCorrupt);
    for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
        EXPECT_EQ(decode(500, value, true).code(), StatusCode::kCorrupt);
    EXPECT_TRUE(decode(500, FLT_MAX, true).is_ok());
    EXPECT_EQ(decode(101, 1, false).code(), StatusCode::kCorrupt);
    ASSERT_TRUE(decode(500, FLT_MAX, true).is_ok());
    EXPECT_TRUE(decode(100, FLT_MAX, false).is_ok());
    for (const float value : memory) ASSERT_TRUE(std::isfinite(value));
    // A second payload though nobody sent a first one.
    ASSERT_TRUE(decode_first_phase({.step = 1}, {}, loop.memory(0)).is_ok());
    EXPECT_TRUE(decode(100, 2, false).is_ok());
}

}  // namespace
}  // namespace gradsieve::codec

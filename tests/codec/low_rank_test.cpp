// lowrank: what it sends and keeps, against matrices whose singular values are known.
#include "codec/stages/low_rank.hpp"

#include "codec/local_clip.hpp"
#include "codec/pipeline_trial.hpp"
#include "codec/state_arrays.hpp"
#include "phase_loop.hpp"

#include <cfloat>
#include <cmath>

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kSeed = 20;

std::vector<float> noise(std::size_t elements, std::mt19937_64& random, double scale = 1) {
    std::normal_distribution<float> normal;
    std::vector<float> values(elements);
    for (float& value : values) value = static_cast<float>(scale) * normal(random);
    return values;
}

/// `count` orthonormal vectors, one behind the other.
std::vector<double> orthonormal_vectors(std::size_t count, std::size_t elements, std::mt19937_64& random) {
    std::normal_distribution<double> normal;
    std::vector<double> vectors(count * elements);
    for (double& value : vectors) value = normal(random);
    for (std::size_t vector = 0; vector < count; ++vector) {
        double* values = vectors.data() + vector * elements;
        for (int pass = 0; pass < 2; ++pass)
            for (std::size_t other = 0; other < vector; ++other) {
                const double* unit = vectors.data() + other * elements;
                double share = 0;
                for (std::size_t at = 0; at < elements; ++at) share += values[at] * unit[at];
                for (std::size_t at = 0; at < elements; ++at) values[at] -= share * unit[at];
            }
        double square = 0;
        for (std::size_t at = 0; at < elements; ++at) square += values[at] * values[at];
        for (std::size_t at = 0; at < elements; ++at) values[at] /= std::sqrt(square);
    }
    return vectors;
}

/// A matrix with these singular values, the others 0.
std::vector<float> matrix_of(const std::vector<double>& singular, std::size_t rows, std::size_t columns,
                             std::mt19937_64& random) {
    const auto left = orthonormal_vectors(singular.size(), rows, random);
    const auto right = orthonormal_vectors(singular.size(), columns, random);
    std::vector<float> matrix(rows * columns);
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t column = 0; column < columns; ++column) {
            double sum = 0;
            for (std::size_t number = 0; number < singular.size(); ++number)
                sum += singular[number] * left[number * rows + row] * right[number * columns + column];
            matrix[row * columns + column] = static_cast<float>(sum);
        }
    return matrix;
}

double norm_of(const std::vector<float>& values) {
    double square = 0;
    for (const float value : values) square += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(square);
}
double distance(const std::vector<float>& left, const std::vector<float>& right) {
    double square = 0;
    for (std::size_t at = 0; at < left.size(); ++at)
        square += std::pow(static_cast<double>(left[at]) - static_cast<double>(right[at]), 2);
    return std::sqrt(square);
}
std::vector<float> sum_of(const std::vector<float>& left, const std::vector<float>& right) {
    std::vector<float> sum(left.size());
    for (std::size_t at = 0; at < sum.size(); ++at) sum[at] = left[at] + right[at];
    return sum;
}

TEST(LowRank, Matrix_of_that_rank_is_sent_whole) {
    std::mt19937_64 random(kSeed);
    const auto matrix = matrix_of({5, 2, 0.5}, 60, 40, random);
    PhaseLoop loop("lowrank(3, 40)", matrix.size(), 1);
    for (int step = 0; step < 3; ++step) {
        const auto outcome = loop.step(matrix);
        EXPECT_LT(distance(outcome.averages[0], matrix), 1e-5 * norm_of(matrix)) << step << " seed " << kSeed;
    }
    EXPECT_LT(norm_of(loop.residual(0)), 1e-5 * norm_of(matrix));
}
TEST(LowRank, Average_of_nodes_is_the_rank_r_part_of_the_mean_and_the_same_on_all) {
    std::mt19937_64 random(kSeed);
    const auto common = matrix_of({8, 3}, 50, 30, random);
    std::vector<std::vector<float>> gradients;  // of rank 6 each, their mean of rank 2
    const auto odd = matrix_of({2, 2, 1, 1}, 50, 30, random);
    for (const float sign : {1.0F, -1.0F}) {
        gradients.push_back(common);
        for (std::size_t at = 0; at < odd.size(); ++at) gradients.back()[at] += sign * odd[at];
    }
    PhaseLoop loop("lowrank(2, columns=30)", common.size(), 2);
    for (int step = 0; step < 2; ++step) {
        const auto outcome = loop.step(gradients);
        EXPECT_TRUE(same_bits(outcome.averages[0], outcome.averages[1]));
        EXPECT_EQ(outcome.decoded[0].digest, outcome.decoded[1].digest);
        EXPECT_EQ(outcome.decoded[0].touched_elements, common.size());
        EXPECT_TRUE(same_bits(loop.factor(0), loop.factor(1))) << "the next step's Q";
        if (step == 0) {
            EXPECT_LT(distance(outcome.averages[0], common), 1e-4 * norm_of(common));
        }
    }
}
// A subspace iteration on a constant matrix: the error goes to that of the best matrix of rank r (Eckart and Young).
TEST(LowRank, Warm_start_comes_close_to_the_best_matrix_of_its_rank) {
    std::mt19937_64 random(kSeed);
    std::vector<double> singular;
    for (int number = 0; number < 20; ++number) singular.push_back(std::pow(0.7, number));
    const auto matrix = matrix_of(singular, 80, 50, random);
    double best = 0;
    for (std::size_t number = 4; number < singular.size(); ++number) best += singular[number] * singular[number];
    best = std::sqrt(best);
    PhaseLoop loop("compensate(beta=0) | lowrank(4, 50)", matrix.size(), 1);
    double before = 0;
    for (int step = 0; step < 12; ++step) {
        const auto outcome = loop.step(matrix);
        const double error = distance(outcome.averages[0], matrix);
        EXPECT_GE(error, best * (1 - 1e-5)) << "nothing of rank 4 is nearer";
        EXPECT_LE(error, norm_of(matrix) * (1 + 1e-6));
        if (step > 0) {
            EXPECT_LE(error, before * (1 + 1e-5)) << step;
        }
        before = error;
    }
    EXPECT_LE(before, 1.01 * best) << "seed " << kSeed;
}
TEST(LowRank, What_was_handed_in_is_sent_or_kept) {
    for (const char* codec : {"lowrank(2, 37)", "momentum(0.5) | lowrank(3, columns=square)",
                              "compensate(gamma=0.5) | lowrank(1, 64)", "accumulate(3) | lowrank(2, 50)"}) {
        std::mt19937_64 random(kSeed);
        constexpr std::size_t kElements = 2003;  // no multiple of the columns
        constexpr std::size_t kNodes = 3;
        constexpr int kSteps = 9;
        PhaseLoop loop(codec, kElements, kNodes);
        const auto pipeline = *parse_pipeline(codec);
        std::vector<double> balance(kElements);  // of what all nodes handed in, less what came back, in means
        std::vector<std::vector<double>> velocity(kNodes, std::vector<double>(kElements));
        double largest = 0;
        for (int step = 0; step < kSteps; ++step) {
            std::vector<std::vector<float>> gradients;
            for (std::size_t node = 0; node < kNodes; ++node) {
                gradients.push_back(noise(kElements, random));
                for (std::size_t at = 0; at < kElements; ++at) {
                    auto& u = velocity[node][at];
                    u = has_momentum(pipeline) ? pipeline.front.factor * u + static_cast<double>(gradients[node][at])
                                               : static_cast<double>(gradients[node][at]);
                    balance[at] += pipeline.front.gamma * u / kNodes;
                }
            }
            const auto outcome = loop.step(gradients);
            for (std::size_t at = 0; at < kElements; ++at) {
                balance[at] -= static_cast<double>(outcome.averages[0][at]);
                largest = std::max(largest, std::fabs(balance[at]));
            }
        }
        for (std::size_t at = 0; at < kElements; ++at) {
            double kept = 0;
            for (std::size_t node = 0; node < kNodes; ++node)
                kept += static_cast<double>(loop.residual(node)[at]) / kNodes;
            ASSERT_NEAR(balance[at], kept, kSteps * 1e-6 * (1 + largest)) << codec << " element " << at;
        }
    }
}
TEST(LowRank, Residual_never_grows_at_a_step_and_what_is_left_is_orthogonal_to_what_was_sent) {
    std::mt19937_64 random(kSeed);
    constexpr std::size_t kRows = 40, kColumns = 25;
    PhaseLoop loop("lowrank(3, 25)", kRows * kColumns, 2);
    for (int step = 0; step < 6; ++step) {
        std::vector<std::vector<float>> gradients;
        std::vector<std::vector<float>> matrices;
        for (std::size_t node = 0; node < 2; ++node) {
            gradients.push_back(noise(kRows * kColumns, random));
            matrices.push_back(sum_of(loop.residual(node), gradients[node]));
        }
        loop.step(gradients);
        for (std::size_t node = 0; node < 2; ++node) {
            const double whole = norm_of(matrices[node]);
            const double left = norm_of(loop.residual(node));
            const double sent = distance(matrices[node], loop.residual(node));
            EXPECT_LE(left, whole);
            EXPECT_NEAR(left * left + sent * sent, whole * whole, 1e-4 * whole * whole) << "P P^T is a projection";
        }
    }
}
TEST(LowRank, Every_form_gives_the_same_bits) {
    for (const std::size_t elements : {1U, 37U, 4096U, 70'001U})
        for (const char* codec : {"lowrank(1, 100)", "lowrank(5, 33)", "lowrank(4, columns=square)"}) {
            std::vector<PhaseLoop> loops;
            for (const auto form : supported_forms()) {
                loops.emplace_back(codec, elements, 2);
                loops.back().form = form;
            }
            std::mt19937_64 random(kSeed);
            for (int step = 0; step < 3; ++step) {
                const std::vector<std::vector<float>> gradients{noise(elements, random), noise(elements, random)};
                const auto expected = loops[0].step(gradients);
                for (std::size_t form = 1; form < loops.size(); ++form) {
                    const auto outcome = loops[form].step(gradients);
                    EXPECT_TRUE(same_bits(outcome.averages[0], expected.averages[0])) << codec << ' ' << elements;
                    EXPECT_EQ(outcome.decoded[0].digest, expected.decoded[0].digest);
                    for (std::size_t node = 0; node < 2; ++node) {
                        EXPECT_TRUE(same_bits(loops[form].residual(node), loops[0].residual(node)));
                        EXPECT_TRUE(same_bits(loops[form].factor(node), loops[0].factor(node)));
                    }
                }
            }
        }
}
TEST(LowRank, Nodes_that_lost_their_factor_still_agree) {
    std::mt19937_64 random(kSeed);
    PhaseLoop loop("lowrank(2, 20)", 800, 3);
    loop.step({noise(800, random), noise(800, random), noise(800, random)});
    std::ranges::fill(loop.factor(1), 0.0F);
    const auto outcome = loop.step({noise(800, random), noise(800, random), noise(800, random)});
    EXPECT_TRUE(same_bits(outcome.averages[0], outcome.averages[1]));
    EXPECT_TRUE(same_bits(outcome.averages[0], outcome.averages[2]));
    EXPECT_TRUE(same_bits(loop.factor(0), loop.factor(1)));
}
TEST(LowRank, Columns_that_a_matrix_does_not_have_come_back_when_it_has_them) {
    std::mt19937_64 random(kSeed);
    PhaseLoop loop("lowrank(3, 30)", 1200, 1);
    EXPECT_EQ(norm_of(loop.step(std::vector<float>(1200)).averages[0]), 0.0);
    EXPECT_EQ(norm_of(loop.factor(0)), 0.0);
    const auto thin = matrix_of({4}, 40, 30, random);
    EXPECT_LT(distance(loop.step(thin).averages[0], thin), 1e-5 * norm_of(thin));
    const auto full = matrix_of({4, 4, 2}, 40, 30, random);
    EXPECT_LT(distance(loop.step(full).averages[0], full), 1e-4 * norm_of(full));
}
TEST(LowRank, Extreme_numbers_leave_finite_results) {
    for (const auto kind : {DataKind::kNearMaximum, DataKind::kSubnormal, DataKind::kWideRange, DataKind::kSignedZeros,
                            DataKind::kConstant, DataKind::kHeavyTailed})
        for (const std::size_t elements : {1U, 40U, 5000U}) {
            std::mt19937_64 random(kSeed);
            PhaseLoop loop("lowrank(2, 50)", elements, 2);
            const auto gradient = make_gradient(kind, elements, random);
            const auto outcome = loop.step(gradient);
            for (const float value : outcome.averages[0])
                ASSERT_TRUE(std::isfinite(value) && !(value == 0.0F && std::signbit(value))) << data_kind_name(kind);
            for (const float value : loop.residual(0)) ASSERT_TRUE(std::isfinite(value)) << data_kind_name(kind);
            for (const float value : loop.factor(0)) ASSERT_TRUE(std::isfinite(value)) << data_kind_name(kind);
        }
}
TEST(LowRank, Numbers_that_are_not_finite_are_found_in_the_first_phase) {
    for (const auto kind : {DataKind::kNotANumber, DataKind::kInfinite}) {
        std::mt19937_64 random(kSeed);
        PhaseLoop loop("lowrank(2, 50)", 3000, 1);
        const auto encoded = loop.encode(0, 0, make_gradient(kind, 3000, random));
        ASSERT_TRUE(encoded.is_ok());
        EXPECT_TRUE(encoded->non_finite.has_value());
        EXPECT_TRUE(encoded->chunks.empty());
    }
}
TEST(LowRank, Payloads_are_two_factors_in_fp32) {
    std::mt19937_64 random(kSeed);
    PhaseLoop loop("lowrank(3, 70)", 7000, 1);
    const auto outcome = loop.step(noise(7000, random));
    EXPECT_EQ(outcome.payload_bytes[0], 2 + 4 * 3 * 100U);
    EXPECT_EQ(outcome.payload_bytes[1], 2 + 4 * 3 * 70U);
    EXPECT_EQ(outcome.kept_elements, 3 * (100U + 70U));
    const auto pipeline = *parse_pipeline("lowrank(3, 70)");
    EXPECT_EQ(phase_elements(pipeline, 7000, 0), 300U);
    EXPECT_EQ(phase_elements(pipeline, 7000, 1), 210U);
    EXPECT_EQ(kept_state_bytes(pipeline, 7000), 2 * 4 * (7000U + 210U));
}
TEST(LowRank, A_matrix_has_no_more_columns_than_elements) {
    const auto shape = matrix_shape(*parse_pipeline("lowrank(2, 1073741824)"), 50);
    EXPECT_EQ(shape.columns, 50U);
    EXPECT_EQ(shape.rows, 1U);
    EXPECT_EQ(matrix_shape(*parse_pipeline("lowrank(2, 7)"), 50).rows, 8U);
    EXPECT_EQ(matrix_shape(*parse_pipeline("lowrank"), 50).columns, 8U);
    EXPECT_EQ(matrix_shape(*parse_pipeline("lowrank"), 0).rows, 0U);
}
TEST(LowRank, Steps_that_only_add_up_send_nothing_and_keep_the_factor) {
    std::mt19937_64 random(kSeed);
    PhaseLoop loop("accumulate(2) | lowrank(2, 30)", 900, 2);
    loop.step(noise(900, random));
    loop.step(noise(900, random));
    const auto factor = loop.factor(0);
    EXPECT_GT(norm_of(factor), 0.0);
    const auto outcome = loop.step(noise(900, random));
    EXPECT_EQ(outcome.payload_bytes[0] + outcome.payload_bytes[1], 0U);
    EXPECT_EQ(norm_of(outcome.averages[0]), 0.0);
    EXPECT_EQ(outcome.decoded[0].touched_elements, 0U);
    EXPECT_TRUE(same_bits(loop.factor(0), factor));
}
TEST(LowRank, Phases_out_of_order_and_other_codecs_are_refused) {
    std::mt19937_64 random(kSeed);
    const auto gradient = noise(900, random);
    PhaseLoop loop("lowrank(2, 30)", 900, 1);
    EXPECT_EQ(loop.encode(0, 1, gradient).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(loop.encode(0, 2, gradient).status().code(), StatusCode::kInvalidArgument);
    ASSERT_TRUE(loop.encode(0, 0, gradient).is_ok());
    EXPECT_EQ(loop.encode(0, 1, gradient).status().code(), StatusCode::kInvalidArgument) << "not decoded yet";
    std::vector<float> memory(900);
    ResultTensor result(1, memory.data(), 900);
    EXPECT_EQ(decode_last_phase(1, {}, loop.memory(0), result).status().code(), StatusCode::kInvalidArgument);

    const auto pipeline = *parse_pipeline("lowrank(2, 30)");
    EncodeLoop single(all_pipeline(QuantizerKind::kF32), 900, 1, 0);
    EncodeRequest request;
    const float* samples[] = {gradient.data()};
    const float weights[] = {1.0F};
    std::vector<float> state(4 * 960);
    request.pipeline = &pipeline;
    request.elements = 900;
    request.step = 1;
    request.samples = samples;
    request.weights = weights;
    request.in = {.residual = state.data(), .factor = state.data() + 900};
    request.out = {.residual = state.data() + 1920, .factor = state.data() + 2820};
    EncodeWorkspace workspace;
    const auto refused = encode_tensor(request, workspace);
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(refused.status().text().find("lowrank(rank=2, columns=30)"), std::string::npos);
    request.out.factor = nullptr;
    EXPECT_NE(encode_phase(0, request, loop.memory(0), workspace).status().text().find("factor: null"),
              std::string::npos);
}
TEST(LowRank, Hostile_payloads_are_refused_or_leave_finite_numbers) {
    std::mt19937_64 random(kSeed);
    PhaseLoop loop("lowrank(2, 30)", 900, 1);
    ASSERT_TRUE(loop.encode(0, 0, noise(900, random)).is_ok());
    const auto decode = [&](std::size_t elements, float value, bool is_first) {
        const auto bytes = build_exact_chunk(std::vector<float>(elements, value));
        const ChunkView chunks[] = {{0, bytes}};
        const Contribution contributions[] = {{1.0F, chunks}};
        static std::vector<float> memory(900);
        static ResultTensor result(1, memory.data(), 900);
        return is_first ? decode_first_phase({.step = 1}, contributions, loop.memory(0))
                        : decode_last_phase(1, contributions, loop.memory(0), result).status();
    };
    EXPECT_EQ(decode(59, 1, true).code(), StatusCode::kCorrupt) << "30 rows and 2 columns";
    EXPECT_EQ(decode(61, 1, true).code(), StatusCode::kCorrupt);
    EXPECT_EQ(decode(60, std::numeric_limits<float>::infinity(), true).code(), StatusCode::kCorrupt);
    EXPECT_TRUE(decode(60, FLT_MAX, true).is_ok());
    const auto large = decode(60, FLT_MAX, false);
    EXPECT_EQ(large.code(), StatusCode::kCorrupt);
    EXPECT_NE(large.text().find("2^116"), std::string::npos) << large.text();
}
TEST(LowRank, Orthonormalization_drops_what_depends_on_others) {
    std::vector<float> matrix;
    for (int row = 0; row < 50; ++row) {
        const auto value = static_cast<float>(row % 7 - 3);
        matrix.insert(matrix.end(), {value, 2 * value, static_cast<float>(row), 0.0F});
    }
    std::vector<float> unit(matrix.size());
    std::vector<double> scratch;
    orthonormalize(matrix, 4, unit, scratch);
    for (std::size_t left = 0; left < 4; ++left)
        for (std::size_t right = 0; right < 4; ++right) {
            double sum = 0;
            for (std::size_t row = 0; row < 50; ++row)
                sum += static_cast<double>(unit[row * 4 + left]) * static_cast<double>(unit[row * 4 + right]);
            const bool is_unit = left == right && left % 2 == 0;
            EXPECT_NEAR(sum, is_unit ? 1 : 0, 1e-6) << left << ' ' << right;
        }
}
TEST(LowRank, Noise_of_a_square_matrix_leaves_what_its_spectrum_says) {
    auto trial = PipelineTrial::of_noise(*parse_pipeline("lowrank(4)"), 64 * 64, kSeed);
    ASSERT_TRUE(trial.is_ok());
    const auto sent = trial->step();
    ASSERT_TRUE(sent.is_ok()) << sent.status().to_string();
    EXPECT_EQ(sent->elements, 2 * 4 * 64U);
    EXPECT_EQ(sent->payload_bytes, 2 * (2 + 4 * 4 * 64U));
    ASSERT_TRUE(trial->decode().is_ok());
    // A projection on 4 of 64 dimensions keeps 1/16 of Gaussian noise, and more where it turned towards the matrix: at
    // most the largest singular values, each within (sqrt(64) + sqrt(64))^2 of 4096.
    EXPECT_LT(trial->normalized_error(), 1 - 1.0 / 16);
    EXPECT_GT(trial->normalized_error(), 1 - 4 * 256.0 / 4096);
}
TEST(LowRank, A_gradient_is_clipped_before_momentum_takes_it_in) {
    PhaseLoop clipped("momentum(0.5, clip=1) | lowrank(2, columns=square)", 900, 1);
    PhaseLoop scaled("momentum(0.5) | lowrank(2, columns=square)", 900, 1);
    const float factor = clip_factor(1, 1, 900 * 9.0);
    ASSERT_LT(factor, 0.02F);
    for (int step = 0; step < 3; ++step)
        EXPECT_EQ(clipped.step(std::vector<float>(900, 3.0F)).averages,
                  scaled.step(std::vector<float>(900, 3.0F * factor)).averages);
}

}  // namespace
}  // namespace gradsieve::codec

// sketch: what its estimates lose.
#include "codec/stages/sketch.hpp"

#include "codec/pipeline_trial.hpp"
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

/// The sketch of one tensor in one step, and what it says of the elements.
std::vector<float> rows_of(const SketchShape& shape, Step step, const std::vector<float>& values) {
    std::vector<float> cells(shape.rows * shape.row_room());
    insert_sketch(shape, SketchDraws(shape, kSeed, 1, step), sketch_kernels(), 0, values, cells);
    std::vector<float> rows(shape.cells());
    finish_sketch(shape, cells, rows);
    return rows;
}
std::vector<float> estimates_of(const SketchShape& shape, Step step, const std::vector<float>& rows) {
    std::vector<float> cells(shape.rows * shape.row_room());
    spread_sketch(shape, rows, cells);
    std::vector<float> estimates(shape.elements);
    estimate_sketch(shape, SketchDraws(shape, kSeed, 1, step), sketch_kernels(), 0, cells, estimates);
    return estimates;
}

// One row: the mean is the element, the variance (|x|^2 less the squares of its block) / columns, whatever x is; so at
// most a count sketch's, (|x|^2 - x_i^2) / columns.
TEST(SketchEstimates, Estimates_of_one_row_are_unbiased_with_the_variance_of_a_count_sketch) {
    constexpr std::size_t kElements = 3000;
    constexpr int kTrials = 3000;
    std::mt19937_64 random(kSeed);
    for (const auto& [columns, stride] : {std::pair{100, 1}, {64, 64}, {300, 300}, {128, 100}}) {
        const SketchShape shape =
            sketch_shape(*parse_pipeline("sketch(0.01, rows=1, columns=" + std::to_string(columns) + ")"), kElements);
        std::vector<float> values(kElements);
        for (std::size_t at = 0; at < kElements; at += static_cast<std::size_t>(stride))  // a column of a matrix
            values[at] = noise(1, random)[0] * (at % 7 == 0 ? 5.0F : 1.0F);
        std::vector<double> sums(kElements);
        std::vector<double> squares(kElements);
        for (Step step = 1; step <= kTrials; ++step) {
            const auto estimates = estimates_of(shape, step, rows_of(shape, step, values));
            for (std::size_t at = 0; at < kElements; ++at) {
                const double error = static_cast<double>(estimates[at]) - static_cast<double>(values[at]);
                sums[at] += error;
                squares[at] += error * error;
            }
        }
        const double whole = square_sum(values);
        double ratio = 0;
        double z_squares = 0;
        for (std::size_t at = 0; at < kElements; ++at) {
            double rest = whole;
            for (std::size_t other = at / shape.block * shape.block;
                 other < std::min<std::size_t>(kElements, (at / shape.block + 1) * shape.block); ++other)
                rest -= static_cast<double>(values[other]) * static_cast<double>(values[other]);
            const double variance = rest / columns;
            const double z = sums[at] / std::sqrt(variance * kTrials);
            EXPECT_LT(std::fabs(z), 6) << at << " columns " << columns << " seed " << kSeed;
            EXPECT_LE(variance, (whole - std::pow(static_cast<double>(values[at]), 2)) / columns);
            z_squares += z * z;
            ratio += squares[at] / (variance * kTrials) / kElements;
        }
        EXPECT_NEAR(ratio, 1, 0.02) << "columns " << columns << " stride " << stride;
        EXPECT_LT(std::fabs(z_squares - kElements), 6 * std::sqrt(2.0 * kElements)) << "columns " << columns;
    }
}
TEST(SketchEstimates, Sketches_are_linear) {
    std::mt19937_64 random(kSeed);
    for (const char* codec : {"sketch(0.01)", "sketch(0.01, 3, 100)", "sketch(0.02, 7)"}) {
        const SketchShape shape = sketch_shape(*parse_pipeline(codec), 20'000);
        std::vector<float> left(shape.elements), right(shape.elements), both(shape.elements);
        for (const bool is_whole : {true, false}) {
            for (std::size_t at = 0; at < shape.elements; ++at) {
                left[at] = is_whole ? static_cast<float>(random() % 65) - 32 : noise(1, random)[0];
                right[at] = is_whole ? static_cast<float>(random() % 65) - 32 : noise(1, random)[0];
                both[at] = left[at] + right[at];
            }
            const auto of_left = rows_of(shape, 5, left);
            const auto of_right = rows_of(shape, 5, right);
            const auto of_both = rows_of(shape, 5, both);
            for (std::size_t cell = 0; cell < of_both.size(); ++cell)
                ASSERT_NEAR(of_left[cell] + of_right[cell], of_both[cell], is_whole ? 0 : 1e-3)
                    << codec << " seed " << kSeed;
        }
    }
}
TEST(SketchEstimates, Rows_differ_and_so_do_steps_tensors_and_seeds) {
    const SketchShape shape = sketch_shape(*parse_pipeline("sketch(0.01, 3, 500)"), 5000);
    const SketchDraws draws(shape, 1, 2, 3);
    for (const auto& other : {SketchDraws(shape, 9, 2, 3), SketchDraws(shape, 1, 9, 3), SketchDraws(shape, 1, 2, 9)}) {
        int equal = 0;
        for (ElementCount block = 0; block < 20; ++block) equal += draws.offset(0, block) == other.offset(0, block);
        EXPECT_LE(equal, 2);
    }
    int equal = 0;
    for (ElementCount block = 0; block < 20; ++block) equal += draws.offset(0, block) == draws.offset(1, block);
    EXPECT_LE(equal, 2);
}
// Ten times the noise: x_i^2 = 100 |x|^2 / columns.
TEST(SketchEstimates, Elements_of_ten_times_the_noise_are_always_sent) {
    constexpr std::size_t kElements = 30'000;
    constexpr std::size_t kHeavy = 2;
    std::mt19937_64 random(kSeed);
    PhaseLoop loop("compensate(beta=0) | sketch(0.02)", kElements, 2);
    const auto columns = static_cast<double>(sketch_shape(loop.pipeline(), kElements).columns);
    for (int step = 0; step < 100; ++step) {
        const std::vector<std::vector<float>> rest{noise(kElements, random), noise(kElements, random)};
        std::vector<float> mean(kElements);
        for (std::size_t at = 0; at < kElements; ++at) mean[at] = (rest[0][at] + rest[1][at]) / 2;
        const double heavy = std::sqrt(100 * square_sum(mean) / (columns - 100 * kHeavy));
        auto gradients = rest;
        std::array<std::size_t, kHeavy> places{};
        for (auto& place : places) {
            place = random() % kElements;
            for (auto& gradient : gradients) gradient[place] = static_cast<float>(random() % 2 == 0 ? heavy : -heavy);
            gradients[1][place] = gradients[0][place];
        }
        const auto outcome = loop.step(gradients);
        for (const std::size_t place : places)
            EXPECT_EQ(outcome.averages[0][place], gradients[0][place]) << "step " << step << " seed " << kSeed;
    }
}
// Estimates of noise say next to nothing, and still a little: what is left is less than random elements would leave.
TEST(SketchEstimates, Noise_leaves_less_than_random_elements_and_more_than_the_largest) {
    constexpr std::size_t kElements = 40'000;
    auto trial = PipelineTrial::of_noise(*parse_pipeline("compensate(beta=0) | sketch(0.05)"), kElements, kSeed);
    ASSERT_TRUE(trial.is_ok());
    double error = 0;
    constexpr int kSteps = 20;
    for (int step = 0; step < kSteps; ++step) {
        const auto sent = trial->step();
        ASSERT_TRUE(sent.is_ok()) << sent.status().to_string();
        EXPECT_EQ(sent->elements, 5 * 2000 + 2000U);
        ASSERT_TRUE(trial->decode().is_ok());
        error += trial->normalized_error() / kSteps;
    }
    EXPECT_LT(error, 1 - 0.05 * 1.02) << "seed " << kSeed;
    EXPECT_GT(error, 1 - 0.28) << "the largest twentieth of normal numbers has 0.28 of the energy";
}
TEST(SketchEstimates, Kernels_of_every_form_give_the_same_bits) {
    std::mt19937_64 random(kSeed);
    for (const char* codec :
         {"sketch(0.05, 1)", "sketch(0.1, 3)", "sketch(0.02)", "sketch(0.05, 7)", "sketch(0.1, 5, 100)"}) {
        const SketchShape shape = sketch_shape(*parse_pipeline(codec), 5000);
        const SketchDraws draws(shape, 1, 2, 3);
        auto values = noise(shape.elements, random);
        values[17] = FLT_MAX;
        values[18] = -FLT_MAX;
        values[4999] = -0.0F;
        std::vector<float> expected_cells, expected;
        for (const auto form : supported_forms()) {
            const SketchKernels& kernels = *sketch_kernels_of(form);
            std::vector<float> cells(shape.rows * shape.row_room());
            insert_sketch(shape, draws, kernels, 0, {values.data(), 2048}, cells);
            insert_sketch(shape, draws, kernels, 2048, {values.data() + 2048, values.size() - 2048}, cells);
            std::vector<float> rows(shape.cells());
            finish_sketch(shape, cells, rows);
            spread_sketch(shape, rows, cells);
            std::vector<float> estimates(shape.elements);
            estimate_sketch(shape, draws, kernels, 0, cells, estimates);
            if (expected.empty()) expected_cells = rows, expected = estimates;
            EXPECT_TRUE(same_bits(rows, expected_cells)) << codec << ' ' << cpu_form_name(form);
            EXPECT_TRUE(same_bits(estimates, expected)) << codec << ' ' << cpu_form_name(form);
        }
    }
}

}  // namespace
}  // namespace gradsieve::codec

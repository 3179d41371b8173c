// Logistic regression on Fashion-MNIST by four nodes, for every codec of convergence_rows.cpp: its loss against that of
// the uncompressed run of as many steps. Seeds are fixed: steps and nodes number the batches.
#include "convergence_rows.hpp"
#include "loopback_job.hpp"
#include "softmax_regression.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace gradsieve::test {
namespace {

constexpr const char* kDataset = "/usr/share/datasets/fashion-mnist";

struct Course {
    RegressionSize size;
    int steps;
    double rate;
};
#if defined(GRADSIEVE_CONVERGENCE_FULL)
constexpr Course kCourse = {{"train", 60000, 28, 4, 4, 16}, 300, 0.02};
#else
constexpr Course kCourse = {{}, 120, 0.05};
#endif

const SoftmaxRegression& problem() {
    static const SoftmaxRegression kProblem(kDataset, kCourse.size);
    return kProblem;
}

struct Outcome {
    double loss = 0;
    double bits = 0;  ///< of payload, for each element, node and step
};
Outcome train(const ConvergenceRow& row) {
    const auto pipeline = codec::parse_pipeline(row.codec);
    EXPECT_TRUE(pipeline.is_ok()) << pipeline.status().to_string();
    if (!pipeline.is_ok()) return {INFINITY, 0};
    const ElementCount elements = problem().parameters();
    const auto& size = problem().size();
    LoopbackJob job(*pipeline, static_cast<PeerIndex>(size.nodes), elements, size.samples,
                    size.samples * size.sample_images);
    std::vector<float> weights(elements, 0.0F);
    std::vector<std::vector<std::vector<float>>> gradients;
    const auto rate = static_cast<float>(kCourse.rate * row.rate);
    for (int step = 0; step < kCourse.steps; ++step) {
        problem().gradients(weights, static_cast<std::uint64_t>(step), gradients);
        const auto average = job.step(gradients);
        for (std::size_t element = 0; element < elements; ++element) weights[element] -= rate * average[element];
        if (job.has_failed()) break;
    }
    const double values = static_cast<double>(elements) * static_cast<double>(size.nodes) * kCourse.steps;
    return {problem().loss(weights), 8.0 * static_cast<double>(job.payload_bytes()) / values};
}

/// Names of the stages of a codec's text.
std::set<std::string> stages_of(const std::string& codec) {
    std::set<std::string> names;
    std::istringstream text(codec);
    for (std::string stage; std::getline(text, stage, '|');) {
        const auto first = stage.find_first_not_of(' ');
        names.insert(stage.substr(first, stage.find_first_of(" (", first) - first));
    }
    return names;
}

TEST(Convergence, Every_stage_has_a_line) {
    std::set<std::string> names;
    for (const ConvergenceRow& row : convergence_rows()) names.merge(stages_of(row.codec));
    for (const codec::StageRow& stage : codec::stage_table())
        EXPECT_TRUE(names.contains(std::string(stage.name)))
            << stage.name << " is in no line of tests/convergence/convergence_rows.cpp: add one, and to the table of "
            << "docs/codecs.md";
}
/// A line of the page's table: `|` in a codec is written as it has to be there.
std::string line_of(const ConvergenceRow& row) {
    std::string codec;
    for (const char letter : row.codec) codec += letter == '|' ? std::string("\\|") : std::string(1, letter);
    std::ostringstream line;
    line << "| `" << codec << "` | " << row.rate << " | ";
    if (row.least > 0)
        line << "does not";
    else
        line << 100 * row.tolerance << " %";
    line << " | " << row.reason << (row.reason.empty() ? "|" : " |");
    return line.str();
}
TEST(Convergence, The_page_has_the_tolerance_of_every_line) {
    std::ifstream page(GRADSIEVE_CODECS_PAGE);
    std::set<std::string> lines;
    for (std::string line; std::getline(page, line);) lines.insert(line);
    for (const ConvergenceRow& row : convergence_rows())
        EXPECT_TRUE(lines.contains(line_of(row))) << "docs/codecs.md has no line\n" << line_of(row);
}
TEST(Convergence, Every_codec_reaches_the_uncompressed_loss_or_its_line_says_why_not) {
    if (!std::filesystem::exists(kDataset)) GTEST_SKIP() << "no " << kDataset << ": install dataset-fashion-mnist";
    const double uncompressed = train({.codec = "all | f32"}).loss;
    RecordProperty("uncompressed loss", std::to_string(uncompressed));
    EXPECT_LT(uncompressed, 1.0) << "of 2.30 at the start";
    for (const ConvergenceRow& row : convergence_rows()) {
        SCOPED_TRACE(row.codec);
        const Outcome outcome = train(row);
        const double over = outcome.loss / uncompressed - 1;
        std::printf("%-50s rate %.2f: loss %.4f, %+.2f %% of %.4f, %.2f bits\n", row.codec.c_str(), row.rate,
                    outcome.loss, 100 * over, uncompressed, outcome.bits);
        EXPECT_LE(over, row.tolerance) << "loss " << outcome.loss << ", uncompressed " << uncompressed;
        EXPECT_GE(over, row.least > 0 ? row.least : -1) << "it comes close after all: " << row.reason;
    }
}

}  // namespace
}  // namespace gradsieve::test

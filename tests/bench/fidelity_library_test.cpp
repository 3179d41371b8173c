#include "bench/fidelity/fidelity_library.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace {

constexpr std::array<uint64_t, 2> kMatrix = {64, 50};
constexpr std::array<uint64_t, 1> kVector = {7};
constexpr std::size_t kElements = 64 * 50 + 7 + 64 * 50;
/// Not in the order of names.
constexpr std::array<fidelity_tensor, 3> kTensors = {
    {{"z", kMatrix.data(), 2}, {"bias", kVector.data(), 1}, {"a", kMatrix.data(), 2}}};

struct Made {
    fidelity_job* job = nullptr;
    std::string error;
};
Made make(const fidelity_options& options) {
    std::array<char, 256> error{};
    Made made{fidelity_make(&options, kTensors.data(), kTensors.size(), error.data(), error.size()), error.data()};
    return made;
}

std::vector<float> numbers(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t place = 0; place < count; ++place)
        values[place] = static_cast<float>(std::sin(static_cast<double>(place) * 0.7));
    return values;
}

TEST(FidelityLibrary, Averages_come_back_in_the_callers_order_of_tensors) {
    const auto made = make({"all | f32", "job", 2, 2, 1, 8});
    ASSERT_NE(made.job, nullptr) << made.error;
    const auto samples = numbers(4 * kElements);
    std::vector<float> average(kElements, -1.0F);
    ASSERT_EQ(fidelity_step(made.job, samples.data(), nullptr, 1.0F, average.data()), 0) << fidelity_error(made.job);
    for (std::size_t element = 0; element < kElements; ++element) {
        double sum = 0;
        for (std::size_t sample = 0; sample < 4; ++sample) sum += samples[sample * kElements + element];
        ASSERT_NEAR(average[element], sum / 4, 1e-6) << element;
    }
    fidelity_counters counters{};
    fidelity_read_counters(made.job, &counters);
    EXPECT_EQ(counters.kept_elements, 2 * kElements);
    EXPECT_GE(counters.wire_bytes, counters.payload_bytes);
    fidelity_free(made.job);
}

TEST(FidelityLibrary, Tensors_get_the_codecs_that_the_daemon_chooses) {
    const auto made = make({"topk(0.5) | f32", "job", 4, 1, 1, 0});
    ASSERT_NE(made.job, nullptr) << made.error;
    EXPECT_NE(std::string(fidelity_codec(made.job, 0)).find("topk"), std::string::npos);
    EXPECT_NE(std::string(fidelity_codec(made.job, 1)).find("bf16"), std::string::npos)
        << "a small tensor of one dimension";
    EXPECT_EQ(fidelity_codec(made.job, 3), nullptr);
    fidelity_free(made.job);
    const auto by_default = make({"", "job", 4, 2, 2, 0});
    ASSERT_NE(by_default.job, nullptr) << by_default.error;
    EXPECT_FALSE(std::string(fidelity_codec(by_default.job, 0)).empty());
    fidelity_free(by_default.job);
}

TEST(FidelityLibrary, Variances_come_from_what_is_handed_in) {
    const auto samples = numbers(2 * 4 * kElements);
    const auto squares = std::vector<float>(2 * kElements, 0.25F);
    std::vector<float> average(kElements);
    const auto source_of = [&](uint32_t ranks, const float* second_moments) {
        const auto made = make({"variance(1) | f32; elements > 0: variance(1) | f32", "job", 2, ranks, 1, 32});
        EXPECT_NE(made.job, nullptr) << made.error;
        if (made.job == nullptr) return std::string();
        EXPECT_EQ(fidelity_step(made.job, samples.data(), second_moments, 1.0F, average.data()), 0)
            << fidelity_error(made.job);
        std::string source = fidelity_variance_source(made.job, 0);
        fidelity_free(made.job);
        return source;
    };
    EXPECT_EQ(source_of(1, squares.data()), "second moment");
    EXPECT_EQ(source_of(1, nullptr), "single gradient");
    EXPECT_EQ(source_of(4, nullptr), "groups, pooled");
}

TEST(FidelityLibrary, What_does_not_fit_is_refused_in_words) {
    EXPECT_EQ(make({"all | f32", "job", 1, 1, 1, 0}).error.find("invalid-argument: nodes is 1; allowed is 2 to 64"),
              0U);
    EXPECT_NE(make({"nonsense", "job", 4, 1, 1, 0}).error.find("codec of the client"), std::string::npos);
    EXPECT_NE(make({"all | f32", "job", 4, 0, 1, 0}).error.find("ranks is 0"), std::string::npos);
    std::array<char, 8> small{};
    const fidelity_options options{"all | f32", "job", 4, 65, 1, 0};
    EXPECT_EQ(fidelity_make(&options, kTensors.data(), kTensors.size(), small.data(), small.size()), nullptr);
    EXPECT_EQ(std::string(small.data()), "invalid");
}

TEST(FidelityLibrary, A_step_that_fails_says_why) {
    const auto made = make({"topk(0.1) | f32", "job", 2, 1, 1, 0});
    ASSERT_NE(made.job, nullptr) << made.error;
    auto samples = numbers(2 * kElements);
    samples[5] = INFINITY;
    std::vector<float> average(kElements);
    EXPECT_EQ(fidelity_step(made.job, samples.data(), nullptr, 1.0F, average.data()), 1);
    EXPECT_NE(std::string(fidelity_error(made.job)).find("'z' at element 5 is not finite"), std::string::npos)
        << fidelity_error(made.job);
    fidelity_free(made.job);
}

}  // namespace

// A job of one rank over a fake daemon, for the tests of Job and Tensor. Options name everything, so that the
// environment of whoever runs the tests does not matter.
#pragma once

#include "fake_daemon.hpp"
#include "gradsieve/gradsieve.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace gradsieve::client::test {

using std::chrono::milliseconds;
/// For waits that must succeed: as long as the watchdog.
inline constexpr Timeout kPatient = kWatchdog;
/// For waits that must not: long enough to sleep once, short enough not to hold up the tests.
inline constexpr Timeout kShort{20};

inline JobOptions options_for(const FakeDaemon& daemon) {
    JobOptions options;
    options.name = "job";
    options.run_id = "run";
    options.rank = 0;
    options.world_size = 1;
    options.codec = "all | f32";
    options.socket_path = daemon.socket_path();
    return options;
}

inline Job make_job(const FakeDaemon& daemon) {
    auto job = Job::make(options_for(daemon));
    EXPECT_TRUE(job.is_ok()) << job.status().to_string();
    return std::move(*job);
}

/// A started job with one tensor of four elements per name.
struct StartedJob {
    explicit StartedJob(const FakeDaemon& daemon, const std::vector<std::string>& names = {"w"},
                        const TensorOptions& options = {})
        : job(make_job(daemon)) {
        for (const auto& name : names) {
            auto tensor = job.add_tensor(name, {2, 2}, options);
            EXPECT_TRUE(tensor.is_ok()) << tensor.status().to_string();
            tensors.push_back(*tensor);
        }
        const auto status = job.start(kPatient);
        EXPECT_TRUE(status.is_ok()) << status.to_string();
    }
    Tensor& tensor(std::size_t index = 0) { return tensors.at(index); }

    Job job;
    std::vector<Tensor> tensors;
};

inline void fill(Tensor& tensor, float value, std::uint32_t sample_index = 0) {
    auto gradient = tensor.gradient(sample_index);
    ASSERT_EQ(gradient.size(), tensor.elements());
    std::fill(gradient.begin(), gradient.end(), value);
}
inline std::vector<float> values_of(const Result<std::span<const float>>& result) {
    if (!result.is_ok()) {
        ADD_FAILURE() << result.status().to_string();
        return {};
    }
    return {result->begin(), result->end()};
}
inline std::vector<float> four_of(float value) { return std::vector<float>(4, value); }

/// A daemon that answers nothing but goodbyes by itself: tests say when and what.
inline FakeDaemon::Script silent() {
    FakeDaemon::Script script;
    script.on_submission = [](FakeDaemon& at, const shm::Submission& submission) {
        if (submission.kind == shm::SubmissionKind::kDetach) at.serve(submission);
    };
    return script;
}
/// A daemon that does not even say goodbye.
inline FakeDaemon::Script mute() {
    FakeDaemon::Script script;
    script.on_submission = [](FakeDaemon&, const shm::Submission&) {};
    return script;
}

}  // namespace gradsieve::client::test

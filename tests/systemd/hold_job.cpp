// A training process of one rank for the test of the packages: takes one step, says so, and keeps its job alive until
// its standard input ends. Links the installed library only. One thread.
#include "gradsieve/gradsieve.hpp"

#include <cstdio>

namespace {

constexpr std::chrono::seconds kPatience{20};

int failed(const char* what, const gradsieve::Status& status) {
    std::printf("%s: %s\n", what, status.to_string().c_str());
    return 1;
}

}  // namespace

int main() {
    auto job = gradsieve::Job::make({.name = "held", .run_id = "1", .rank = 0, .world_size = 1});
    if (!job.has_value()) return failed("make", job.error());
    auto tensor = job->add_tensor("weights", {4});
    if (!tensor.has_value()) return failed("add_tensor", tensor.error());
    if (const auto status = job->start(kPatience); !status.is_ok()) return failed("start", status);
    for (float& element : tensor->gradient()) element = 0.5F;
    if (const auto status = tensor->submit(job->first_step()); !status.is_ok()) return failed("submit", status);
    const auto average = tensor->wait(kPatience);
    if (!average.has_value()) return failed("wait", average.error());
    std::printf("average %g\n", static_cast<double>(average->front()));
    std::fflush(stdout);
    while (std::getchar() != EOF) {}
    if (const auto status = job->detach(kPatience); !status.is_ok()) return failed("detach", status);
    std::printf("detached\n");
    return 0;
}

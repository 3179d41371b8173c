#include "gpu_check.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace gradsieve::gpu_check {

void Report::begin_section(std::string_view name) {
    fmt::print("\n== {}\n", name);
    std::fflush(stdout);
}

void Report::expect(bool holds, const std::string& what) {
    ++(holds ? held_ : failed_);
    if (holds) return;
    fmt::print("FAILED {}\n", what);
    std::fflush(stdout);
}

bool Report::expect_ok(const Status& status, const std::string& what) {
    expect(status.is_ok(), what + ": " + status.to_string());
    return status.is_ok();
}

void Report::figure(const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
}

void Report::skip(const std::string& what) {
    ++skipped_;
    fmt::print("skipped: {}\n", what);
}

void Report::not_measured(const std::string& reason) {
    ++skipped_;
    fmt::print("not measured: {}\n", reason);
}

std::string Report::summary() const {
    return fmt::format("gpu-check: {} equalities held, {} failed, {} skipped", held_, failed_, skipped_);
}

}  // namespace gradsieve::gpu_check

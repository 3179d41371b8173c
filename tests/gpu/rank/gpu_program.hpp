// What the training processes of the GPU checks share: one line of JSON for an answer, and an end with status 3 at
// the first error. Tests only.
#pragma once

#include "tests/e2e/rank_options.hpp"

#include <gradsieve/gradsieve.hpp>

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace gradsieve::gpu_check {

[[noreturn]] inline void fail(const std::string& what, const std::string& why) {
    std::printf("{\"event\":\"error\",\"what\":\"%s\",\"why\":\"%s\"}\n", what.c_str(), why.c_str());
    std::fflush(stdout);
    std::_Exit(3);
}
inline void must(const gradsieve::Status& status, const char* what) {
    if (!status.is_ok()) fail(what, status.to_string());
}
inline void must(cudaError_t error, const char* what) {
    if (error != cudaSuccess) fail(what, cudaGetErrorString(error));
}

}  // namespace gradsieve::gpu_check

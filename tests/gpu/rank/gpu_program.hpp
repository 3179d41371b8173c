// What the training processes of the GPU checks share: options as pairs, one line of JSON for an answer, and an end
// with status 3 at the first error. Tests only.
#pragma once

#include <gradsieve/gradsieve.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace gradsieve::gpu_check {

/// "--key value" pairs.
struct RankOptions {
    RankOptions(int argc, char** argv) {
        for (int place = 1; place + 1 < argc; place += 2) values[std::string(argv[place]).substr(2)] = argv[place + 1];
    }
    std::map<std::string, std::string> values;
    [[nodiscard]] std::string text(const std::string& key, const std::string& otherwise = "") const {
        const auto found = values.find(key);
        return found == values.end() ? otherwise : found->second;
    }
    [[nodiscard]] std::uint64_t number(const std::string& key, std::uint64_t otherwise) const {
        const auto found = values.find(key);
        return found == values.end() ? otherwise : std::stoull(found->second);
    }
};

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

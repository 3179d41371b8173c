#include "cli/gradient_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace gradsieve::cli {

namespace {

constexpr std::uint64_t kBlock = 1024;
/// More steps would not show more, and take memory.
constexpr std::uint64_t kMostSteps = 64;

Status refuse(const std::string& path, const std::string& what, const std::string& remedy) {
    return {StatusCode::kInvalidArgument, fmt::format("gradients '{}': {}; {}", path, what, remedy)};
}

}  // namespace

Result<RecordedGradients> read_gradients(const std::string& path, std::uint64_t elements, std::uint64_t most) {
    std::error_code error;
    const std::uint64_t bytes = std::filesystem::file_size(path, error);
    std::ifstream file(path, std::ios::binary);
    if (error || !file)
        return Status(
            StatusCode::kNotFound,
            fmt::format("gradients '{}': {}; allowed is a file of 4-byte floats; record some steps' gradients", path,
                        error ? error.message() : std::strerror(errno)));
    if (bytes == 0 || elements == 0 || bytes % (sizeof(float) * elements) != 0)
        return refuse(path, fmt::format("{} bytes", bytes),
                      fmt::format("allowed are whole gradients of {} numbers of 4 bytes; name the elements of the file",
                                  elements));
    RecordedGradients found;
    const std::uint64_t blocks = elements > most ? most / kBlock : 1;
    const std::uint64_t block = elements > most ? kBlock : elements;
    found.elements = blocks * block;
    const auto steps = std::min(kMostSteps, bytes / (sizeof(float) * elements));
    found.values.resize(steps * found.elements);
    float* next = found.values.data();
    for (std::uint64_t step = 0; step < steps; ++step)
        for (std::uint64_t at = 0; at < blocks; ++at, next += block) {
            const std::uint64_t first = blocks > 1 ? at * (elements - block) / (blocks - 1) : 0;
            file.seekg(static_cast<std::streamoff>(sizeof(float) * (step * elements + first)));
            file.read(reinterpret_cast<char*>(next), static_cast<std::streamsize>(sizeof(float) * block));
        }
    if (!file) return refuse(path, "it became shorter while it was read", "allowed is a file that rests; try again");
    const auto odd =
        std::find_if_not(found.values.begin(), found.values.end(), [](float value) { return std::isfinite(value); });
    if (odd != found.values.end())
        return refuse(path, fmt::format("has the number {}", *odd),
                      "allowed are finite ones; record steps that came out well");
    return found;
}

}  // namespace gradsieve::cli

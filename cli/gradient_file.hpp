// Recorded gradients that codecs are tried on instead of noise. Any thread.
#pragma once

#include "base/status.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace gradsieve::cli {

/// Gradients of one node, one step's behind the other.
struct RecordedGradients {
    std::vector<float> values;   ///< `elements` of each step
    std::uint64_t elements = 0;  ///< of a step, as far as they were taken
};

/// `path`: numbers as a processor has them in memory, 4-byte floats, steps of `elements` each, one or more (NumPy:
/// `array.tofile(path)`). Of more than `most` elements a step (>= 1,024), as many are taken in blocks of 1,024 that lie
/// evenly over all, the same of each step. Errors: kNotFound, kInvalidArgument (its size, a number that is not finite).
[[nodiscard]] Result<RecordedGradients> read_gradients(const std::string& path, std::uint64_t elements,
                                                       std::uint64_t most);

}  // namespace gradsieve::cli

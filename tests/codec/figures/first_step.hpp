// One step of a codec over one vector of normal numbers, encoded and decoded: what every point of a figure is.
#pragma once

#include "codec/pipeline_trial.hpp"

#include <cstdint>
#include <string>

namespace gradsieve::codec {

/// Seed of the first vector; the next ones' follow.
inline constexpr std::uint64_t kFigureSeed = 12410;

struct FirstStep {
    PipelineTrial trial;
    PipelineTrial::Sent sent;
};
/// Throws std::runtime_error if the text is no codec, or the codec fails.
[[nodiscard]] FirstStep run_first_step(const std::string& codec, ElementCount elements, std::uint64_t seed);

}  // namespace gradsieve::codec

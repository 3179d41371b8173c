#include "first_step.hpp"

#include <stdexcept>

namespace gradsieve::codec {

FirstStep run_first_step(const std::string& codec, ElementCount elements, std::uint64_t seed) {
    const auto pipeline = parse_pipeline(codec);
    if (!pipeline.is_ok()) throw std::runtime_error(pipeline.status().to_string());
    auto trial = PipelineTrial::of_noise(*pipeline, elements, seed);
    if (!trial.is_ok()) throw std::runtime_error(trial.status().to_string());
    const auto sent = trial->step();
    if (!sent.is_ok()) throw std::runtime_error(sent.status().to_string());
    if (const Status status = trial->decode(); !status.is_ok()) throw std::runtime_error(status.to_string());
    return {std::move(*trial), *sent};
}

}  // namespace gradsieve::codec

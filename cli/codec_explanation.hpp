// One codec in words and figures: what its stages send, what it keeps per element, and what it cost on noise, or on
// recorded gradients, that were really encoded here. Pure but for the trial; any thread.
#pragma once

#include "cli/codec_list.hpp"
#include "cli/console.hpp"
#include "cli/gradient_file.hpp"

#include "base/status.hpp"
#include "codec/codec_rules.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace gradsieve::cli {

/// What was measured on noise or recorded gradients, for the trial's own size.
struct CodecTrial {
    bool is_of_noise = true;
    std::uint64_t elements = 0;
    unsigned steps = 0;              ///< in all; figures are those of the last quarter
    double sent_fraction = 0;        ///< of the elements, mean
    double payload_bytes = 0;        ///< a step, mean
    double normalized_error = 0;     ///< see codec/pipeline_trial.hpp
    double encode_milliseconds = 0;  ///< a step, median, one thread
    double decode_milliseconds = 0;
};
struct CodecExplanation {
    std::string text;               ///< every parameter written out
    std::vector<StageView> stages;  ///< those it is made of
    std::uint64_t elements = 0;     ///< asked for
    std::uint64_t state_bytes = 0;  ///< both generations, for `elements`
    /// Codecs of two phases: numbers that a step sends of `elements`, in the mean; else 0.
    double phase_numbers = 0;
    bool keeps_factor = false;  ///< lowrank's
    CodecTrial trial;
};

/// Most elements of a trial's tensor: a quarter of a chunk. Sizes per element are those of a whole one within a per
/// mille, in a fraction of the time.
constexpr std::uint64_t kTrialElements = std::uint64_t{1} << 18U;

/// Runs the trial: under a second for most codecs. `elements` >= 1; `recorded`: instead of noise, kTrialElements a step
/// at most. Errors: kInvalidArgument.
[[nodiscard]] Result<CodecExplanation> explain_codec(const codec::Pipeline& pipeline, std::uint64_t elements,
                                                     const RecordedGradients* recorded = nullptr);
[[nodiscard]] std::string render_explanation(const CodecExplanation& explanation, const Look& look);
[[nodiscard]] std::string explanation_json(const CodecExplanation& explanation);

/// The pipeline that a codec's text is. Errors: kInvalidArgument (also where rules for some tensors follow).
[[nodiscard]] Result<codec::Pipeline> pipeline_alone(const std::string& text);

/// The row of the codec layer's table as shown.
[[nodiscard]] StageView view_of(const codec::StageRow& row);

}  // namespace gradsieve::cli

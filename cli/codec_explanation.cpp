#include "cli/codec_explanation.hpp"

#include "cli/human.hpp"

#include "codec/phases.hpp"
#include "codec/pipeline_text.hpp"
#include "codec/pipeline_trial.hpp"
#include "codec/stages/warmup.hpp"
#include "codec/state_arrays.hpp"
#include "daemon/config_budget.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>

namespace gradsieve::cli {

namespace {

using Clock = std::chrono::steady_clock;

/// After this many the residual of topk(0.01) and the variance have their usual size.
constexpr unsigned kTrialSteps = 400;
constexpr unsigned kTrialStepsWithoutState = 16;
constexpr std::uint64_t kSeed = 1;
constexpr std::size_t kLineIndent = 2;

double milliseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median_of(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

Result<codec::PipelineTrial> make_trial(const codec::Pipeline& pipeline, std::uint64_t elements,
                                        const RecordedGradients* recorded) {
    const auto settled = codec::settled_pipeline(pipeline);
    if (recorded == nullptr) return codec::PipelineTrial::of_noise(settled, elements, kSeed);
    return codec::PipelineTrial::of_gradients(settled, elements, recorded->values, kSeed);
}

Result<CodecTrial> try_codec(const codec::Pipeline& pipeline, std::uint64_t elements,
                             const RecordedGradients* recorded) {
    CodecTrial found;
    found.is_of_noise = recorded == nullptr;
    found.elements = recorded == nullptr ? std::min(elements, kTrialElements) : recorded->elements;
    found.steps = codec::has_residual(pipeline) ? kTrialSteps : kTrialStepsWithoutState;
    // As many of those that send as there are: whole periods in what is counted.
    const auto period = static_cast<unsigned>(pipeline.front.period);
    found.steps = (found.steps + 4 * period - 1) / (4 * period) * (4 * period);
    GRADSIEVE_ASSIGN(auto trial, make_trial(pipeline, found.elements, recorded));
    const unsigned counted = found.steps / 4;
    std::uint64_t sent_elements = 0;
    std::uint64_t payload_bytes = 0;
    std::vector<double> encode_times;
    std::vector<double> decode_times;
    for (unsigned step = 0; step < found.steps; ++step) {
        const auto begin = Clock::now();
        GRADSIEVE_ASSIGN(const auto sent, trial.step());
        const double encode_time = milliseconds_since(begin);
        if (step < found.steps - counted) continue;
        const auto encoded = Clock::now();
        GRADSIEVE_TRY(trial.decode());
        if ((step + 1) % period == 0) {
            decode_times.push_back(milliseconds_since(encoded));
            encode_times.push_back(encode_time);
        }
        sent_elements += sent.elements;
        payload_bytes += sent.payload_bytes;
        found.normalized_error += trial.normalized_error() / counted;
    }
    found.sent_fraction = static_cast<double>(sent_elements) / static_cast<double>(found.elements * counted);
    found.payload_bytes = static_cast<double>(payload_bytes) / counted;
    found.encode_milliseconds = median_of(encode_times);
    found.decode_milliseconds = median_of(decode_times);
    return found;
}

/// The stages named in a canonical text, in its order, with the arguments that they have there.
Result<std::vector<StageView>> stages_of(const std::string& text) {
    GRADSIEVE_ASSIGN(const auto named, codec::split_pipeline(text));
    std::vector<StageView> stages;
    for (const auto& stage : named)
        for (const auto& row : codec::stage_table())
            if (row.name == stage.name) {
                stages.push_back(view_of(row));
                stages.back().parameters.clear();
                for (const auto& [name, value] : stage.arguments)
                    stages.back().parameters +=
                        fmt::format("{}{}={}", stages.back().parameters.empty() ? "" : ", ", name, value);
            }
    return stages;
}

std::string lines_of(const std::string& text, const Look& look) {
    std::string lines;
    for (const auto& line : wrap_words(text, look.width - kLineIndent, look.ellipsis()))
        lines += std::string(kLineIndent, ' ') + line + '\n';
    return lines;
}

struct Scaled {
    double bytes = 0;
    double sent_fraction = 0;
    double ratio = 0;  ///< to fp32
    double bits_per_sent = 0;
    double encode_milliseconds = 0;
    double decode_milliseconds = 0;
};
Scaled scaled(const CodecExplanation& explanation) {
    const auto& trial = explanation.trial;
    const double scale = static_cast<double>(explanation.elements) / static_cast<double>(trial.elements);
    Scaled figures;
    figures.bytes = trial.payload_bytes * scale;
    figures.sent_fraction = trial.sent_fraction;
    if (trial.payload_bytes > 0) figures.ratio = 4 * static_cast<double>(trial.elements) / trial.payload_bytes;
    if (explanation.phase_numbers > 0) {  // they do not grow with the elements
        figures.bytes = explanation.phase_numbers * sizeof(float);
        figures.sent_fraction = explanation.phase_numbers / static_cast<double>(explanation.elements);
        figures.ratio = 1 / figures.sent_fraction;
    }
    const double sent = trial.sent_fraction * static_cast<double>(trial.elements);
    if (sent > 0) figures.bits_per_sent = 8 * trial.payload_bytes / sent;
    figures.encode_milliseconds = trial.encode_milliseconds * scale;
    figures.decode_milliseconds = trial.decode_milliseconds * scale;
    return figures;
}

std::string kept_text(const CodecExplanation& explanation) {
    if (explanation.state_bytes == 0) return "nothing from step to step: what it loses is lost";
    if (explanation.keeps_factor)
        return fmt::format(
            "8 B per element and the right factor, two generations of each: {} for {} elements, on "
            "every node",
            memory_text(explanation.state_bytes), count_text(explanation.elements));
    return fmt::format("{} B per element, two generations of each array: {} for {} elements, on every node",
                       explanation.state_bytes / explanation.elements, memory_text(explanation.state_bytes),
                       count_text(explanation.elements));
}

}  // namespace

Result<codec::Pipeline> pipeline_alone(const std::string& text) {
    GRADSIEVE_ASSIGN(const auto split, daemon::split_budget(text));
    if (split.budget.is_set())
        return Status(StatusCode::kInvalidArgument, "codec '" + text +
                                                        "': has a budget: allowed is one pipeline here, of "
                                                        "which a job's budget moves the number; leave it out");
    GRADSIEVE_ASSIGN(const auto parsed, codec::parse_codec(text));
    if (parsed.rules.empty()) return parsed.main;
    return Status(StatusCode::kInvalidArgument, "codec '" + text + "': has " + std::to_string(parsed.rules.size()) +
                                                    " rules for some tensors: allowed is one pipeline here; give each "
                                                    "rule's by itself");
}

StageView view_of(const codec::StageRow& row) {
    return {std::string(row.name),   std::string(row.role),    std::string(row.parameters),
            std::string(row.scope),  std::string(row.state),   std::string(row.meaning),
            std::string(row.source), std::string(row.combine), std::string(row.backends)};
}

Result<CodecExplanation> explain_codec(const codec::Pipeline& pipeline, std::uint64_t elements,
                                       const RecordedGradients* recorded) {
    CodecExplanation explanation;
    explanation.text = codec::canonical_text(pipeline, codec::Knobs::kKeep);
    GRADSIEVE_ASSIGN(explanation.stages, stages_of(explanation.text));
    explanation.elements = elements;
    explanation.state_bytes = codec::kept_state_bytes(pipeline, elements);
    if (codec::has_phases(pipeline))
        explanation.phase_numbers = static_cast<double>(codec::phase_elements(pipeline, elements, 0) +
                                                        codec::phase_elements(pipeline, elements, 1)) /
                                    pipeline.front.period;
    explanation.keeps_factor = codec::has_factor(pipeline);
    GRADSIEVE_ASSIGN(explanation.trial, try_codec(pipeline, elements, recorded));
    return explanation;
}

std::string render_explanation(const CodecExplanation& explanation, const Look& look) {
    const auto& trial = explanation.trial;
    const auto figures = scaled(explanation);
    std::string text = look.paint(Ink::kBold, explanation.text) + "\n\n" + look.paint(Ink::kTitle, "sends") + '\n';
    for (const auto& stage : explanation.stages)
        if (stage.role != "index coder" || trial.sent_fraction < 1)  // without gaps there are no positions to send
            text += lines_of(stage.name + ": " + stage.meaning, look);
    text += '\n' + look.paint(Ink::kTitle, "keeps") + '\n' + lines_of(kept_text(explanation), look);
    text +=
        '\n' + look.paint(Ink::kTitle, "costs") + ' ' +
        look.paint(Ink::kDim, fmt::format("on {} of {} elements, steps {} to {}, this machine's CPU",
                                          trial.is_of_noise ? "Gaussian noise" : "recorded gradients",
                                          count_text(trial.elements), trial.steps - trial.steps / 4 + 1, trial.steps)) +
        '\n';
    text += lines_of(fmt::format("{} a step and node for {} elements, {} times less than fp32",
                                 bytes_text(static_cast<std::uint64_t>(figures.bytes)),
                                 count_text(explanation.elements), figure_text(figures.ratio)),
                     look);
    text += lines_of(fmt::format("{} % of the elements, {} bits for each of them",
                                 figure_text(100 * figures.sent_fraction), figure_text(figures.bits_per_sent)),
                     look);
    text += lines_of(fmt::format("{:.3f} of the energy of residual and gradient left for later steps, or lost where "
                                 "nothing is kept",
                                 trial.normalized_error),
                     look);
    text += lines_of(fmt::format("{} ms to encode and {} ms to decode one node's payloads, on one core",
                                 figure_text(figures.encode_milliseconds), figure_text(figures.decode_milliseconds)),
                     look);
    if (!trial.is_of_noise) return text;
    return text + '\n' +
           look.paint(Ink::kDim, "Gradients are not noise: gradsieve status shows what a job really sends.") + '\n';
}

std::string explanation_json(const CodecExplanation& explanation) {
    const auto& trial = explanation.trial;
    const auto figures = scaled(explanation);
    nlohmann::ordered_json root;
    root["codec"] = explanation.text;
    root["stages"] = nlohmann::ordered_json::parse(stages_json(explanation.stages));
    root["elements"] = explanation.elements;
    root["state_bytes"] = explanation.state_bytes;
    root[trial.is_of_noise ? "on_noise" : "on_gradients"] = {{"elements", trial.elements},
                                                             {"steps", trial.steps},
                                                             {"sent_fraction", trial.sent_fraction},
                                                             {"payload_bytes", trial.payload_bytes},
                                                             {"bits_per_sent_element", figures.bits_per_sent},
                                                             {"ratio_to_fp32", figures.ratio},
                                                             {"normalized_error", trial.normalized_error},
                                                             {"encode_ms", trial.encode_milliseconds},
                                                             {"decode_ms", trial.decode_milliseconds}};
    return root.dump(2) + '\n';
}

}  // namespace gradsieve::cli

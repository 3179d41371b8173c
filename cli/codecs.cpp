// gradsieve codecs: the stages that codecs are made of, from the codec layer's own table, and what one codec does.
#include "cli/codec_explanation.hpp"
#include "cli/commands.hpp"

#include <ostream>

namespace gradsieve::cli {

ExitCode run_codecs(const CodecsOptions& options, Console& console) {
    std::vector<StageView> stages;
    for (const auto& row : codec::stage_table()) stages.push_back(view_of(row));
    console.out << (options.is_json ? stages_json(stages) : render_stages(stages, console.look));
    return ExitCode::kOk;
}

namespace {

Result<CodecExplanation> explain(const ExplainOptions& options) {
    GRADSIEVE_ASSIGN(const auto pipeline, pipeline_alone(options.codec));
    if (options.gradients.empty()) return explain_codec(pipeline, options.elements);
    GRADSIEVE_ASSIGN(const auto recorded, read_gradients(options.gradients, options.elements, kTrialElements));
    return explain_codec(pipeline, options.elements, &recorded);
}

}  // namespace

ExitCode run_explain(const ExplainOptions& options, Console& console) {
    const auto explanation = explain(options);
    if (!explanation.is_ok()) {
        console.error << "gradsieve: " << explanation.error().text() << '\n';
        return ExitCode::kFailed;
    }
    console.out << (options.is_json ? explanation_json(*explanation) : render_explanation(*explanation, console.look));
    return ExitCode::kOk;
}

}  // namespace gradsieve::cli

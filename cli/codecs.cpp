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

ExitCode run_explain(const ExplainOptions& options, Console& console) {
    auto pipeline = pipeline_alone(options.codec);
    auto explanation =
        pipeline.is_ok() ? explain_codec(*pipeline, options.elements) : Result<CodecExplanation>(pipeline.error());
    if (!explanation.is_ok()) {
        console.error << "gradsieve: " << explanation.error().text() << '\n';
        return ExitCode::kFailed;
    }
    console.out << (options.is_json ? explanation_json(*explanation) : render_explanation(*explanation, console.look));
    return ExitCode::kOk;
}

}  // namespace gradsieve::cli

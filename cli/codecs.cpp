// gradsieve codecs: the stages that codecs are made of, from the codec layer's own table.
#include "cli/codec_list.hpp"
#include "cli/commands.hpp"

#include "codec/pipeline.hpp"

#include <ostream>

namespace gradsieve::cli {

ExitCode run_codecs(const CodecsOptions& options, Console& console) {
    std::vector<StageView> stages;
    for (const auto& row : codec::stage_table())
        stages.push_back({std::string(row.name), std::string(row.role), std::string(row.parameters),
                          std::string(row.scope), std::string(row.state), std::string(row.meaning),
                          std::string(row.source)});
    console.out << (options.is_json ? stages_json(stages) : render_stages(stages, console.look));
    return ExitCode::kOk;
}

}  // namespace gradsieve::cli

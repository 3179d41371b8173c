#include "cli/codec_list.hpp"

#include "cli/human.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gradsieve::cli {

namespace {

constexpr std::size_t kMeaningIndent = 6;

std::string wrapped(std::string_view text, std::size_t indent, Ink ink, const Look& look) {
    std::string lines;
    for (const auto& line : wrap_words(text, look.width - indent, look.ellipsis()))
        if (!line.empty()) lines += std::string(indent, ' ') + look.paint(ink, line) + '\n';
    return lines;
}

std::string render_stage(const StageView& stage, const Look& look) {
    auto text = "  " + look.paint(Ink::kBold, stage.name);
    if (!stage.parameters.empty()) text += fmt::format("({})", stage.parameters);
    text += '\n' + wrapped(stage.meaning, kMeaningIndent, Ink::kPlain, look);
    std::vector<std::string> facts;
    const auto add = [&facts](const std::string& label, const std::string& fact) {
        if (!fact.empty() && fact != "-") facts.push_back(label + fact);
    };
    add("scope: ", stage.scope);
    add("state: ", stage.state);
    if (stage.combine != "gather") add("combine: ", stage.combine);
    if (stage.backends != "CPU, CUDA") add("backends: ", stage.backends);
    add("source: ", stage.source);
    std::string line;
    for (const auto& fact : facts) line += (line.empty() ? "" : "; ") + fact;
    return text + wrapped(line, kMeaningIndent, Ink::kDim, look);
}

}  // namespace

std::string render_stages(const std::vector<StageView>& stages, const Look& look) {
    std::vector<std::string> roles;
    for (const auto& stage : stages)
        if (std::find(roles.begin(), roles.end(), stage.role) == roles.end()) roles.push_back(stage.role);
    auto text = wrapped(
        "A codec is SELECTOR | QUANTIZER | INDEX CODER, e.g. topk(0.01) | pow2(bits=4) | auto; a FRONT may stand "
        "before it, an ENTROPY CODER behind it, a WHOLE CODEC in place of all three",
        0, Ink::kPlain, look);
    for (const auto& role : roles) {
        text += '\n' + look.paint(Ink::kTitle, role + 's') + '\n';
        for (const auto& stage : stages)
            if (stage.role == role) text += render_stage(stage, look);
    }
    return text;
}

}  // namespace gradsieve::cli

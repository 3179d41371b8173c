#include "cli/codec_list.hpp"

#include "cli/human.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gradsieve::cli {

namespace {

constexpr std::size_t kIndent = 6;

/// Words in lines of the look's width.
std::string wrapped(std::string_view text, std::size_t indent, Ink ink, const Look& look) {
    std::string lines;
    std::string line;
    const auto finish = [&] {
        if (!line.empty()) lines += std::string(indent, ' ') + look.paint(ink, line) + '\n';
        line.clear();
    };
    for (std::size_t start = 0; start < text.size();) {
        const auto end = std::min(text.find(' ', start), text.size());
        const auto word = text.substr(start, end - start);
        if (indent + display_width(line) + 1 + display_width(word) > look.width) finish();
        if (!word.empty()) line += (line.empty() ? "" : " ") + std::string(word);
        start = end + 1;
    }
    finish();
    return lines;
}

std::string render_stage(const StageView& stage, const Look& look) {
    auto text = "  " + look.paint(Ink::kBold, stage.name);
    if (!stage.parameters.empty()) text += fmt::format("({})", stage.parameters);
    text += '\n' + wrapped(stage.meaning, kIndent, Ink::kPlain, look);
    std::vector<std::string> facts;
    if (!stage.scope.empty()) facts.push_back("scope: " + stage.scope);
    if (!stage.state.empty()) facts.push_back("state: " + stage.state);
    if (!stage.source.empty()) facts.push_back("source: " + stage.source);
    std::string line;
    for (const auto& fact : facts) line += (line.empty() ? "" : "; ") + fact;
    return text + wrapped(line, kIndent, Ink::kDim, look);
}

}  // namespace

std::string render_stages(const std::vector<StageView>& stages, const Look& look) {
    std::vector<std::string> roles;
    for (const auto& stage : stages)
        if (std::find(roles.begin(), roles.end(), stage.role) == roles.end()) roles.push_back(stage.role);
    std::string text = "A codec is SELECTOR | QUANTIZER | INDEX CODER, e.g. topk(0.01) | pow2(bits=4) | auto\n";
    for (const auto& role : roles) {
        text += '\n' + look.paint(Ink::kTitle, role + 's') + '\n';
        for (const auto& stage : stages)
            if (stage.role == role) text += render_stage(stage, look);
    }
    return text;
}

}  // namespace gradsieve::cli

#include "codec/stages/topk.hpp"

#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

constexpr std::array<std::string_view, 2> kScopeNames = {"tensor", "model"};

Status read(ArgumentReader& arguments, Selector& ret_selector) {
    ret_selector.ratio = arguments.number("ratio", std::nullopt, kFraction);
    ret_selector.scope = arguments.word("scope", 0, kScopeNames) == 1 ? Scope::kModel : Scope::kTensor;
    ret_selector.gate = arguments.number("gate", 0, kNotNegative);
    return arguments.finish();
}

std::string arguments_text(const Selector& selector, Knobs knobs) {
    return "ratio=" + knob_text(selector.ratio, knobs) +
           ", scope=" + std::string(kScopeNames[selector.scope == Scope::kModel ? 1 : 0]) +
           ", gate=" + knob_text(selector.gate, knobs);
}

}  // namespace

const SelectorStage TopK::kStage = {
    .row =
        StageRow{
            "topk", "selector", "ratio, scope=tensor|model, gate=0", "tensor or model",
            "r: 4 B per element and generation; with a gate r, v: 8 B",
            "sends the ratio's share of largest magnitudes, with a gate only among those with r^2 > gate v; "
            "scope=model: of all tensors of a step that have this codec, which are handed in before one of them is "
            "waited for",
            "Beznosikov, Horvath, Richtarik, Safaryan 2020, On Biased Compression for Distributed Learning, "
            "arXiv:2002.12410, Top-k"},
    .kind = SelectorKind::kTopK,
    .selection = Selection::kBest,
    .read = read,
    .arguments = arguments_text,
    .has_ratio = true,
};

}  // namespace gradsieve::codec::stages

#include "codec/stages/block_topk.hpp"

#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {
namespace {

Status read(ArgumentReader& arguments, Selector& ret_selector) {
    ret_selector.ratio = arguments.number("ratio", std::nullopt, kFraction);
    return read_block(arguments, "block_topk", ret_selector);
}

std::string arguments_text(const Selector& selector, Knobs knobs) {
    return "ratio=" + knob_text(selector.ratio, knobs) + ", block=" + knob_text(selector.block, knobs);
}

}  // namespace

const SelectorStage BlockTopK::kStage = {
    .row =
        StageRow{
            "block_topk", "selector", "ratio, block=4096", "block", "r: 4 B per element and generation",
            "sends the ratio's share of largest magnitudes of each block of so many elements, a power of two, and at "
            "least one; nothing has to be known of the rest of the tensor",
            "Top-k of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410, block by block"},
    .kind = SelectorKind::kBlockTopK,
    .selection = Selection::kBlockBest,
    .read = read,
    .arguments = arguments_text,
    .has_ratio = true,
};

}  // namespace gradsieve::codec::stages

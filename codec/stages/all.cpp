#include "codec/stages/all.hpp"

namespace gradsieve::codec::stages {

const SelectorStage All::kStage = {
    .row = StageRow{"all", "selector", "", "-",
                    "none with f32 and feedback=none; r otherwise: 4 B per element and generation",
                    "sends every element", "-"},
    .kind = SelectorKind::kAll,
    .selection = Selection::kEvery,
    .expected_share = [](const Selector&) { return 1.0; },
};

}  // namespace gradsieve::codec::stages

// The selector `randk`: a fixed number of elements, drawn at random by a key that all nodes have. How: random_mask.hpp.
// A constant; any thread.
#pragma once

#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {

struct RandK {
    static const SelectorStage kStage;
};

}  // namespace gradsieve::codec::stages

// The selector `bernoulli` (Wangni, Wang, Liu, Zhang 2018): each element with one probability, by a key that all nodes
// have. How: random_mask.hpp. A constant; any thread.
#pragma once

#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {

struct Bernoulli {
    static const SelectorStage kStage;
};

}  // namespace gradsieve::codec::stages

// The selector `biased_random`: each element with a probability that goes from one end of the tensor to the other, by a
// key that all nodes have. How: random_mask.hpp. A constant; any thread.
#pragma once

#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {

struct BiasedRandom {
    static const SelectorStage kStage;
};

}  // namespace gradsieve::codec::stages

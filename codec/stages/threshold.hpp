// The selector `threshold` (Strom 2015): magnitudes above tau, a test in the dense pass, DenseRule::kMagnitude. A
// constant; any thread.
#pragma once

#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {

struct Threshold {
    static const SelectorStage kStage;
};

}  // namespace gradsieve::codec::stages

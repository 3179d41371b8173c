// The selector `variance` (Tsuzuku, Imachi, Akiba 2018): a test in the dense pass, DenseRule::kVariance. A constant;
// any thread.
#pragma once

#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {

struct Variance {
    static const SelectorStage kStage;
};

}  // namespace gradsieve::codec::stages

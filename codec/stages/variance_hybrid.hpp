// The selector `variance_hybrid`: variance's test and a threshold, which is the quantum as well. A test in the dense
// pass, DenseRule::kVarianceHybrid. A constant; any thread.
#pragma once

#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {

struct VarianceHybrid {
    static const SelectorStage kStage;
};

}  // namespace gradsieve::codec::stages

// The selector `gaussian_k` (Shi, Chu, Cheung, See 2019): a threshold estimated from the tensor's mean and variance.
// How: threshold_estimate.hpp. A constant; any thread.
#pragma once

#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {

struct GaussianK {
    static const SelectorStage kStage;
};

}  // namespace gradsieve::codec::stages

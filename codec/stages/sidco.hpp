// The selector `sidco` (Abdelmoniem, Elzanaty, Alouini, Canini 2021): a threshold estimated from fits of exponential
// distributions. How: threshold_estimate.hpp. A constant; any thread.
#pragma once

#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {

struct Sidco {
    static const SelectorStage kStage;
};

}  // namespace gradsieve::codec::stages

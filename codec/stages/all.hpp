// The selector `all`: sends every element. A constant; any thread.
#pragma once

#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {

struct All {
    static const SelectorStage kStage;
};

}  // namespace gradsieve::codec::stages

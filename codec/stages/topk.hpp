// The selector `topk`: the largest magnitudes of a tensor, or of all tensors of a step (model_scope.hpp). How they are
// found: select_topk.hpp, codec/cuda/top_k.cu. A constant; any thread.
#pragma once

#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {

struct TopK {
    static const SelectorStage kStage;
};

}  // namespace gradsieve::codec::stages

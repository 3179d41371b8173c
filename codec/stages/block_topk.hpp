// The selector `block_topk`: the largest magnitudes of each block. How they are found: select_blocks.hpp,
// codec/cuda/block_top_k.cu. A constant; any thread.
#pragma once

#include "codec/stages/stage.hpp"

namespace gradsieve::codec::stages {

struct BlockTopK {
    static const SelectorStage kStage;
};

}  // namespace gradsieve::codec::stages

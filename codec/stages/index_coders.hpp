// The index coders, which are the index forms of the payload format and a choice of them: how they write positions is
// index_coder.hpp's, and codec/cuda/payload_layout.cuh's. Constants; any thread.
#pragma once

namespace gradsieve::codec {

struct IndexCoderStage;

namespace stages {

struct Auto {
    static const IndexCoderStage kStage;
};
struct Rice {
    static const IndexCoderStage kStage;
};
struct Bitmap {
    static const IndexCoderStage kStage;
};
struct Raw32 {
    static const IndexCoderStage kStage;
};
struct EliasFano {
    static const IndexCoderStage kStage;
};

}  // namespace stages
}  // namespace gradsieve::codec

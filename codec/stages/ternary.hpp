// The quantizer `ternary` (Wen et al. 2017, TernGrad): another name of dither(levels=1, norm=max), with magnitudes cut
// off. Constants; any thread.
#pragma once

namespace gradsieve::codec {

struct QuantizerStage;

namespace stages {

struct Ternary {
    static const QuantizerStage kStage;
};

}  // namespace stages
}  // namespace gradsieve::codec

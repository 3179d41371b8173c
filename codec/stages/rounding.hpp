// The quantizer `rounding`: another name of exponential_dither, with powers of the base as its levels. Constants; any
// thread.
#pragma once

namespace gradsieve::codec {

struct QuantizerStage;

namespace stages {

struct Rounding {
    static const QuantizerStage kStage;
};

}  // namespace stages
}  // namespace gradsieve::codec

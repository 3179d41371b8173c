// The front stage `rotate`: tiles are rotated before they are quantized. How: rotation.hpp. A constant; any thread.
#pragma once

namespace gradsieve::codec {

struct FrontStage;

namespace stages {

struct Rotate {
    static const FrontStage kStage;
};

}  // namespace stages
}  // namespace gradsieve::codec

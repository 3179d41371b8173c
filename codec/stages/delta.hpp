// The front stage `delta` (Richtarik, Sokolov, Fatkhullin 2021): sends differences. What becomes of the state:
// difference.hpp. A constant; any thread.
#pragma once

namespace gradsieve::codec {

struct FrontStage;

namespace stages {

struct Delta {
    static const FrontStage kStage;
};

}  // namespace stages
}  // namespace gradsieve::codec

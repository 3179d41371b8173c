// The front stage `compensate`: factors of the residual and of the gradient (residual_factor, gradient_weight), and a
// low-pass of what is kept (low_pass.hpp). A constant; any thread.
#pragma once

namespace gradsieve::codec {

struct FrontStage;

namespace stages {

struct Compensate {
    static const FrontStage kStage;
};

}  // namespace stages
}  // namespace gradsieve::codec

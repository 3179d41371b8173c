// What a gradient is multiplied by so that its norm is within a bound: the arithmetic of local_clip.hpp, once for the
// CPU's forms and the GPU's. Must hold no state. Any thread.
#pragma once

#include "codec/element.hpp"

#include <cmath>

namespace gradsieve::codec {

/// In [0, 1]; 1 if the norm is within the bound, or not finite. `most`: the bound, above 0.
GRADSIEVE_HOST_DEVICE inline float bounded_factor(double most, double square_sum) {
    const double norm = std::sqrt(square_sum);
    if (!(norm > most) || !(norm <= DBL_MAX)) return 1.0F;
    return static_cast<float>(most / norm);
}

}  // namespace gradsieve::codec

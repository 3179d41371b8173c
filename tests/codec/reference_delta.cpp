#include "reference_delta.hpp"

#include <cmath>

namespace gradsieve::codec::reference {

Output encode_difference(const Input& input, const State& before) {
    Input plain = input;
    plain.pipeline.front.is_difference = false;
    State residual = before;
    for (float& value : residual.residual) value = -value;
    Output output = encode(plain, residual);
    if (output.non_finite) return output;
    for (ElementCount element = 0; element < input.elements; ++element) {
        const float sent = before.residual[element] + output.decoded[element];
        output.state.residual[element] = sent;
        if (input.pipeline.front.kind == FrontKind::kMomentum)
            output.state.momentum[element] = momentum_after(input, before, element);
        if (std::isfinite(sent) || output.non_finite) continue;
        output.non_finite = NonFinite{0, element};
    }
    return output;
}

}  // namespace gradsieve::codec::reference

#include "codec/low_pass.hpp"

namespace gradsieve::codec {

LowPassFactors low_pass_factors(const Front& front, float rescale) noexcept {
    const auto take = static_cast<float>(front.low_pass);
    return {(1.0F - take) * rescale, take};
}

LowPassStep low_pass_step(const EncodeRequest& request) noexcept {
    const LowPassFactors factors = low_pass_factors(request.pipeline->front, request.rescale);
    return {request.in.residual, request.out.residual, factors.keep, factors.take};
}

}  // namespace gradsieve::codec

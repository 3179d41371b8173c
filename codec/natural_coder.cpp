#include "codec/natural_coder.hpp"

namespace gradsieve::codec {

NaturalStep natural_step(const Quantizer& quantizer, const RandomStream& random, std::uint64_t first_element) noexcept {
    return {natural_factor(quantizer.feedback == Feedback::kScaled), random_rounds(random), first_element};
}

}  // namespace gradsieve::codec

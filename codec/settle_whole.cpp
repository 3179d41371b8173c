#include "codec/settle_whole.hpp"

#include "codec/stages/low_rank.hpp"
#include "codec/stages/sketch.hpp"

namespace gradsieve::codec {

Pipeline sent_as_it_is(const Pipeline& pipeline) {
    Pipeline plain;
    plain.measures_similarity = pipeline.measures_similarity;
    plain.front = pipeline.front;
    plain.front.beta = plain.front.low_pass = 1;  // nothing is kept that they could multiply
    plain.front.period = 1;
    return plain;
}

Pipeline settle_whole(const Pipeline& pipeline, std::span<const std::uint64_t> shape) {
    ElementCount elements = 1;
    for (const auto extent : shape) elements *= extent;
    return settle_sketch(settle_low_rank(pipeline, shape), elements);
}

}  // namespace gradsieve::codec

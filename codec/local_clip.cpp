#include "codec/local_clip.hpp"

#include "codec/tile_sum_tree.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::codec {

double most_clipped_norm(double clip, std::uint32_t node_count) noexcept {
    return clip * std::sqrt(static_cast<double>(node_count));
}

float clip_factor(double clip, std::uint32_t node_count, double square_sum) noexcept {
    return bounded_factor(most_clipped_norm(clip, node_count), square_sum);
}

double mean_square_sum(const MomentumStep& step, ElementCount elements, const PayloadKernels& kernels,
                       std::span<float> scratch) noexcept {
    TileSumTree sums;
    for (ElementCount first = 0; first < elements; first += kTileElements) {
        const auto count = static_cast<std::uint32_t>(std::min<ElementCount>(kTileElements, elements - first));
        kernels.average_samples(&step, first, count, scratch.data());
        sums.add(kernels.square_sum(scratch.data(), count));
    }
    return sums.total();
}

}  // namespace gradsieve::codec

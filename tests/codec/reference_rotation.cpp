#include "reference_rotation.hpp"

#include "codec/rotation.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::codec::reference {

PhiloxKey chunk_rotation(const Input& input, ElementCount first) {
    return rotation_key(has_drive_scale(input.pipeline.quantizer) ? input.random_seed : input.selection_seed,
                        input.tensor, input.step, static_cast<std::uint32_t>(first / kChunkElements));
}

std::optional<NonFinite> find_too_large(const Input& input, const std::vector<float>& residual) {
    if (!has_rotation(input.pipeline)) return std::nullopt;
    if (input.step % static_cast<Step>(input.pipeline.front.period) != 0) return std::nullopt;
    for (ElementCount first = 0; first < input.elements; first += kTileElements) {
        const ElementCount end = std::min(first + kTileElements, input.elements);
        ElementCount largest = first;
        for (ElementCount element = first; element < end; ++element)
            if (std::fabs(residual[element]) > std::fabs(residual[largest])) largest = element;
        if (std::fabs(residual[largest]) > 0x1p100F) return NonFinite{0, largest};
    }
    return std::nullopt;
}

}  // namespace gradsieve::codec::reference

// The number of a pipeline by which a node can make it send more or less, alone: records describe themselves, so nodes
// may differ in it. A density is a factor on what is sent, 1 being the pipeline as written. Any thread; plain values.
#pragma once

#include "codec/pipeline.hpp"

namespace gradsieve::codec {

/// How what is sent follows the density.
enum class DensityResponse : std::uint8_t {
    kExact = 0,      ///< in the same step, in proportion: a share of so many elements
    kEstimated = 1,  ///< in the same step, about so: a threshold that is estimated
    kGradual = 2,    ///< over many steps: what is held back waits in the residual, and goes once it is large enough
};

/// Errors: kInvalidArgument saying why the pipeline has no such number: everything is sent, or all nodes (or tensors)
/// have to have the same one.
[[nodiscard]] Result<DensityResponse> density_response(const Pipeline& pipeline);

/// `written` at that density, > 0: shares are multiplied by it, thresholds (alpha, tau) divided, and both kept where
/// the text could have them. One that has no density stays as it is.
[[nodiscard]] Pipeline at_density(const Pipeline& written, double density);

struct DensityLimits {
    double least = 1, most = 1;
};
/// Between which densities moving changes anything for a tensor of so many elements, >= 1: a share from one element to
/// all; thresholds by 2^20 either way.
[[nodiscard]] DensityLimits density_limits(const Pipeline& written, ElementCount elements) noexcept;

/// "ratio = 0.0123", the number as it stands in the pipeline; empty if there is none.
[[nodiscard]] std::string density_text(const Pipeline& pipeline);

}  // namespace gradsieve::codec

// Quantizer and index coder together: turns what a selector picked in one chunk into payload bytes, and says what the
// receivers will decode, so that the encoder keeps the rest in the residual. Sparse work: costs what was selected, not
// what was looked at (except for dense selections). One thread per scratch object; the caller owns every array.
#pragma once

#include "base/bytes.hpp"
#include "base/id.hpp"
#include "base/status.hpp"
#include "codec/entropy_coder.hpp"
#include "codec/payload.hpp"
#include "codec/payload_kernels.hpp"
#include "codec/payload_pool.hpp"
#include "codec/pipeline.hpp"
#include "codec/random_selection.hpp"

#include <array>
#include <span>
#include <vector>

namespace gradsieve::codec {

struct ChunkSelection {
    ElementCount chunk_elements = 0;         ///< 1 .. kChunkElements
    bool is_dense = false;                   ///< selector `all`: `values` has chunk_elements cells, `indices` is empty
    std::span<const std::uint32_t> indices;  ///< strictly ascending, inside the chunk
    std::span<const float> values;           ///< finite; the accumulated gradient at those indices
    float tensor_maximum = 0;        ///< largest selected magnitude of the whole tensor; read by tensor scope only
    RandomStream random{};           ///< read by what rounds at random only, as the next
    ElementCount first_element = 0;  ///< of the chunk in the tensor
    const SelectionRule* keyed = nullptr;  ///< of a random selector: `indices` are those it stands for
    const PhiloxKey* rotation = nullptr;   ///< dense: the key, if the chunk's rotation is what is coded
};
/// Working memory of code_chunk, grown once and then reused. Its contents mean nothing between calls.
struct CodeScratch {
    const PayloadKernels* kernels = &payload_kernels();
    PayloadPool payloads;                ///< where the payload's memory comes from
    std::vector<std::uint32_t> indices;  ///< of what is sent, where that is not simply what was selected
    std::vector<float> decoded;
    std::vector<std::uint32_t> gaps;
    std::vector<std::uint8_t> codes;
    std::vector<std::uint32_t> integers;  ///< codes of integer, as words
    EntropyScratch entropy;
    /// dither, exponential_dither: by tile of the chunk; sign(scale=two_mean): two for each.
    std::array<float, 2 * kMaximumTiles> scales;
};

/// One self-describing payload, empty if nothing is sent. Fills `ret_decoded[i]` = what receivers decode for
/// `values[i]`; in a sparse selection without a key exactly +0 means "not sent" (a zero, or too small for the exponent
/// range): the encoder then keeps residual and variance as for an element not selected. `ret_decoded` may be the memory
/// of `values` itself.
[[nodiscard]] PayloadBytes code_chunk(const Pipeline& pipeline, const ChunkSelection& selection, CodeScratch& scratch,
                                      std::span<float> ret_decoded);

}  // namespace gradsieve::codec

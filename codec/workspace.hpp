// Scratch memory of one encoding thread, grown to its largest use and then reused.
#pragma once

#include "codec/chunk_coder.hpp"
#include "codec/decoder.hpp"
#include "codec/encoder.hpp"
#include "codec/select_topk.hpp"

namespace gradsieve::codec {

struct EncodeWorkspace::Impl {
    PayloadPool payloads;  ///< for callers without one
    SpanCells span_cells;
    TopKCandidates candidates;
    CodeScratch code;
    ScratchArray<float> decoded;                ///< what receivers decode for one chunk's selection
    ScratchArray<float> tile_values;            ///< two tiles of r on their way through a sign
    ScratchArray<std::uint32_t> keyed_indices;  ///< of a chunk
    ScratchArray<float> keyed_values;
    std::vector<std::uint64_t> weights;  ///< of a block's candidates, added up
    ScratchArray<float> samples;         ///< one block of every sample, between the two passes over it
    ScratchArray<float> sample_weights;  ///< compensate: gamma times the request's; momentum: what clip makes of them
    ScratchArray<float> tile_mean;       ///< momentum with clip: the samples' mean of a tile
    ResultTensor sent{0, nullptr, 0};    ///< delta: decodes what the tensor in hand sends
};

}  // namespace gradsieve::codec

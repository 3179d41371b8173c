// The state array `sent` of pipelines of which has_reuse holds: a node's own last payload of a tensor and what it is
// known by, as bytes that a generation of floats has room for (docs/state-format.md). In the state, so that a step that
// is done again, in a later life, is skipped or sent as it was. Any thread; plain values.
#pragma once

#include "codec/decoder.hpp"
#include "codec/encoder.hpp"
#include "codec/stages/similarity.hpp"

#include <optional>
#include <span>
#include <vector>

namespace gradsieve::codec {

struct SentState {
    int in_a_row = 0;               ///< steps since the payload was coded, none of which coded another
    Signature payload;              ///< of what it decodes to
    Signature residual;             ///< of r as the last of those steps left it
    std::vector<ChunkView> chunks;  ///< at least one; borrows from whoever keeps it
};

/// Most bytes of a payload of a chunk of so many elements, of a pipeline that sends every element.
[[nodiscard]] ByteCount most_payload_bytes(const Pipeline& pipeline, ElementCount elements) noexcept;
/// Size of the array.
[[nodiscard]] ElementCount sent_floats(const Pipeline& pipeline, ElementCount elements) noexcept;
/// Borrows from `array`, of sent_floats(pipeline, elements). Nothing if it is zero, or is not what write_sent wrote.
[[nodiscard]] std::optional<SentState> read_sent(const Pipeline& pipeline, ElementCount elements, const float* array);
/// Null: there is no payload. Payloads are those of the pipeline, of at most most_payload_bytes each.
void write_sent(const Pipeline& pipeline, ElementCount elements, const SentState* state, float* ret_array) noexcept;

}  // namespace gradsieve::codec

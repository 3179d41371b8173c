// The entropy stage: a payload's value codes as a canonical Huffman code of their own, without loss. A payload goes in
// and one that says the same goes out, so whatever selects, quantizes or averages knows nothing of it. Reads untrusted
// bytes. One thread per scratch object; the caller owns all memory.
#pragma once

#include "codec/huffman.hpp"
#include "codec/payload.hpp"
#include "codec/payload_pool.hpp"

#include <vector>

namespace gradsieve::codec {

/// Codes of one stream; each starts at a byte whose place the lengths before it say.
inline constexpr std::uint32_t kEntropyGroup = 1024;

/// Reusable memory; its contents mean nothing between calls.
struct EntropyScratch {
    std::vector<std::uint8_t> codes;
};

/// The payload with coded values where that is shorter, otherwise `plain` itself. `plain`: empty, or a correct payload
/// of a chunk of so many elements, in plain codes.
[[nodiscard]] PayloadBytes code_entropy(PayloadBytes plain, ElementCount elements, const PayloadPool& payloads,
                                        EntropyScratch& scratch);

/// What stands behind the header of the payload in plain codes, from what stands behind that of one with coded values.
/// Written to `inout_memory`, which is longer. Errors: kCorrupt.
[[nodiscard]] Result<ByteView> expand_entropy(const PayloadHeader& header, ByteView body, Bytes& inout_memory);

}  // namespace gradsieve::codec

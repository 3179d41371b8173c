// What payloads are made of, in bytes, read back from the payloads themselves.
#pragma once

#include "codec/encoder.hpp"

#include <span>

namespace gradsieve::codec {

struct WireParts {
    std::uint64_t elements = 0;  ///< sent
    std::uint64_t payloads = 0;
    std::uint64_t header_bytes = 0;
    std::uint64_t index_bytes = 0;
    std::uint64_t scale_bytes = 0;
    std::uint64_t value_bytes = 0;

    [[nodiscard]] std::uint64_t total() const { return header_bytes + index_bytes + scale_bytes + value_bytes; }
};
/// Of one tensor's payloads. Ends the program where a payload does not parse.
[[nodiscard]] WireParts wire_parts(std::span<const ChunkPayload> chunks, ElementCount elements);

/// Bits that a uniform random support of density f needs for each of its elements: H(f) / f.
[[nodiscard]] double index_entropy(double density);

}  // namespace gradsieve::codec

#include "wire_parts.hpp"

#include "codec/index_coder.hpp"
#include "codec/payload.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <vector>

namespace gradsieve::codec {

WireParts wire_parts(std::span<const ChunkPayload> chunks, ElementCount elements) {
    WireParts parts;
    std::vector<std::uint32_t> indices(kChunkElements + kIndexSlack);
    for (const ChunkPayload& chunk : chunks) {
        const ByteView payload = chunk.bytes.view();
        const ElementCount here = std::min<ElementCount>(
            kChunkElements, elements - ElementCount{chunk.chunk_index} * ElementCount{kChunkElements});
        const auto parsed = parse_header(payload, here);
        std::size_t used = 0;
        if (parsed.is_ok() && parsed->header.is_list()) {
            const Status status =
                parse_indices(parsed->header, payload.subspan(parsed->header_bytes), here, indices.data(), used);
            if (!status.is_ok()) used = payload.size();
        }
        const std::uint64_t values =
            parsed.is_ok() ? bytes_of_bits(std::uint64_t{parsed->header.value_bits()} * parsed->header.count) : 0;
        if (!parsed.is_ok() || parsed->header_bytes + used + values > payload.size()) {
            std::cerr << "an encoder's payload does not parse\n";
            std::abort();
        }
        parts.elements += parsed->header.count;
        parts.payloads += 1;
        parts.header_bytes += parsed->header_bytes;
        parts.index_bytes += used;
        parts.value_bytes += values;
        parts.scale_bytes += payload.size() - parsed->header_bytes - used - values;
    }
    return parts;
}

double index_entropy(double density) {
    const double others = 1 - density;
    return (-density * std::log2(density) - (others > 0 ? others * std::log2(others) : 0)) / density;
}

}  // namespace gradsieve::codec

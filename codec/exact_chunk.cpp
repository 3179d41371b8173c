// Exact fp32 values as a payload of the dense f32 form, for broadcasts: any bits, also infinities and NaN.
#include "codec/decoder.hpp"
#include "codec/payload.hpp"

namespace gradsieve::codec {

Bytes build_exact_chunk(std::span<const float> values) {
    PayloadHeader header;
    header.count = static_cast<std::uint32_t>(values.size());
    PayloadContent content;
    content.chunk_elements = values.size();
    Bytes payload(encoded_bytes(header, content));
    std::byte* out = build_header(header, payload.data());
    std::memcpy(out, values.data(), values.size_bytes());
    return payload;
}

Status read_exact_chunk(ByteView payload, std::span<float> ret_values) {
    GRADSIEVE_ASSIGN(const ParsedHeader parsed, parse_header(payload, ret_values.size()));
    if (parsed.header.is_list() || parsed.header.is_rotated || !facts_of(parsed.header.quantizer).is_exact)
        return corrupt_payload("form of an exact chunk", "another", "every element as f32");
    const ByteView values = payload.subspan(parsed.header_bytes);
    if (values.size() != ret_values.size_bytes())
        return corrupt_payload("length behind the header", values.size(),
                               std::to_string(ret_values.size_bytes()) + " bytes");
    std::memcpy(ret_values.data(), values.data(), values.size());
    return {};
}

}  // namespace gradsieve::codec

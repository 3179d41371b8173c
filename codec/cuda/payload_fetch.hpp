// Takes those payloads of a finished batch out of the encoder's memory that have no place in its mirror on the host: in
// pieces, two of them under way. One thread.
#pragma once

#include "codec/cuda/encode_memory.hpp"

namespace gradsieve::codec::cuda {

/// One payload and where it goes.
struct PayloadPlace {
    ByteCount offset = 0;
    ByteCount bytes = 0;
    std::byte* target = nullptr;  ///< `bytes` of them, owned by the result
};

/// Copies each payload to its target. `places` is sorted in passing. Errors: kUnavailable.
[[nodiscard]] Status fetch_payloads(const Stream& stream, const EncodeMemory& memory, std::span<PayloadPlace> places);

}  // namespace gradsieve::codec::cuda

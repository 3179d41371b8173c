// Takes the payloads of a finished batch out of the encoder's memory: those that the kernels mirrored are there
// already, the others are copied in pieces through the mirror, two pieces under way. One thread.
#pragma once

#include "codec/cuda/encode_memory.hpp"

namespace gradsieve::codec::cuda {

/// One payload and where it goes.
struct PayloadPlace {
    ByteCount offset = 0;
    ByteCount bytes = 0;
    std::byte* target = nullptr;  ///< `bytes` of them, owned by the result
};

/// Copies each payload to its target. `places` is sorted in passing. `mirrored_bytes`: what the mirror holds already.
/// Errors: kUnavailable.
[[nodiscard]] Status fetch_payloads(const Stream& stream, const EncodeMemory& memory, ByteCount mirrored_bytes,
                                    std::span<PayloadPlace> places);

}  // namespace gradsieve::codec::cuda

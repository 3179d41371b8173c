// Long messages on the local socket travel in a memfd that can change no more. Any thread; the caller owns descriptors.
#pragma once

#include "base/bytes.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace gradsieve::shm {

/// Errors: kResourceExhausted (memory, descriptors).
[[nodiscard]] Result<UniqueFd> seal_message(ByteView bytes);

/// Reads a descriptor from outside. Errors: kCorrupt (no memfd of exactly `size_bytes` that is sealed against writing
/// and resizing, or larger than kLocalMessageLimitBytes).
[[nodiscard]] Result<Bytes> unseal_message(int fd, std::uint64_t size_bytes);

/// What every refusal of bytes from the socket looks like.
[[nodiscard]] Status refuse_message(const std::string& seen);

}  // namespace gradsieve::shm

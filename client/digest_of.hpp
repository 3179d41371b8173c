// The digest of parameters that lie in several places. Pure; any thread; reads only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradsieve::client {

/// `digest_of` what a concatenation of all `parts` would hold, without making one: where they are cut does not matter.
[[nodiscard]] std::uint64_t digest_of_all(std::span<const std::span<const std::byte>> parts) noexcept;

}  // namespace gradsieve::client

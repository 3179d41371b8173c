// The digest that programs compare with check_equal, and the library's version. Pure; any thread.
#include "gradsieve/gradsieve.hpp"

#define XXH_INLINE_ALL  // no run-time dependency: the library links shm and base alone
#include <xxhash.h>

namespace gradsieve {

std::uint64_t digest_of(std::span<const std::byte> bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string_view version() noexcept { return GRADSIEVE_VERSION; }

}  // namespace gradsieve

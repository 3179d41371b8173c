// The digest that programs compare with check_equal, and the library's version. Pure; any thread.
#include "client/digest_of.hpp"

#include "gradsieve/gradsieve.hpp"

#define XXH_INLINE_ALL  // no run-time dependency: the library links shm and base alone
#include <xxhash.h>

namespace gradsieve {

std::uint64_t digest_of(std::span<const std::byte> bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string_view version() noexcept { return GRADSIEVE_VERSION; }

namespace client {

std::uint64_t digest_of_all(std::span<const std::span<const std::byte>> parts) noexcept {
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    for (const auto part : parts)
        if (!part.empty()) XXH3_64bits_update(&state, part.data(), part.size());  // an empty one may have no address
    return XXH3_64bits_digest(&state);
}

}  // namespace client
}  // namespace gradsieve

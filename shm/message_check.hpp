// What the values of an attach request may be. Used by both sides: the client asks before it sends, the daemon after it
// parsed. Pure; any thread.
#pragma once

#include "base/status.hpp"

#include <string_view>

namespace gradsieve::shm {

/// True for well-formed UTF-8 without control characters (C0, DEL, C1): fit for logs, terminals and JSON.
[[nodiscard]] bool is_printable_utf8(std::string_view text) noexcept;

}  // namespace gradsieve::shm

// What an epoll event of the conductor is about: the kind of descriptor in the top byte, the session's number below.
#pragma once

#include <cstdint>

namespace gradsieve::daemon {

inline constexpr std::uint64_t kListenerTag = 1;
inline constexpr std::uint64_t kDoorbellTag = 2;
inline constexpr std::uint64_t kSocketTag = 3;
inline constexpr std::uint64_t kProcessTag = 4;
inline constexpr std::uint64_t kBellTag = 5;

[[nodiscard]] constexpr std::uint64_t make_tag(std::uint64_t kind, std::uint64_t session_id) noexcept {
    return kind << 56U | session_id;
}
[[nodiscard]] constexpr std::uint64_t tag_kind(std::uint64_t tag) noexcept { return tag >> 56U; }
[[nodiscard]] constexpr std::uint64_t tag_session(std::uint64_t tag) noexcept {
    return tag & ((std::uint64_t{1} << 56U) - 1);
}

}  // namespace gradsieve::daemon

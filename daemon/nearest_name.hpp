// The name a typist most likely meant: for error texts only. Any thread; plain values.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gradsieve::daemon {

/// The candidate with the smallest edit distance to `name`, if that is small enough to be a slip (at most a third of
/// the name's length, and at least 2 are always allowed); else "". Ties keep the earlier candidate. O(candidates x
/// length^2).
[[nodiscard]] std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace gradsieve::daemon

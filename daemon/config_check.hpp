// Checks of single configuration values that are more than a range: lists of CPUs, interfaces, names, paths, codecs.
// Each answers whether the text is well formed, never whether the thing exists. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gradsieve::daemon {

/// "0-3,8", numbers below 8,192, ranges ascending; "" = all.
[[nodiscard]] bool is_cpu_list(std::string_view text);
/// "", an interface's name, an address, a network in CIDR form, each but "" with an optional leading "!".
[[nodiscard]] bool is_interface_rule(const std::string& text);
/// 1 to 64 of A-Z a-z 0-9 . _ -
[[nodiscard]] bool is_node_name(std::string_view text);
/// An IP address or a host name, without a port.
[[nodiscard]] bool is_host_address(std::string_view text);
/// 1 to 32 of A-Z a-z 0-9 _ - . $; the shape of a group's name.
[[nodiscard]] bool is_group_name(std::string_view text);
/// Absolute, without NUL, at most `limit_bytes`.
[[nodiscard]] bool is_absolute_path(std::string_view text, std::size_t limit_bytes);
/// Why `text` is no codec; nothing if it is one. `may_have_rules`: for tensors of some names or sizes.
[[nodiscard]] std::optional<std::string> codec_refusal(const std::string& text, bool may_have_rules);

}  // namespace gradsieve::daemon

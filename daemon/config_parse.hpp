// Reads one configuration file into a Config. Only its .cpp includes toml++, and that library's exceptions end there.
// Any thread; blocks on the file only.
#pragma once

#include "daemon/config.hpp"

#include <string>
#include <string_view>

namespace gradsieve::daemon {

/// Sets the keys that `toml` holds in `config` and marks their origin "file". `file` is for error texts. All problems
/// are told at once, one per line, in the order of their lines. Errors: kInvalidArgument; `config` is then half-set.
[[nodiscard]] Status parse_config_text(std::string_view toml, const std::string& file, Config& config);
/// The file's text. Errors: kNotFound, kPermissionDenied, kInvalidArgument (not a file, or longer than 1 MiB).
[[nodiscard]] Result<std::string> read_config_file(const std::string& file);

}  // namespace gradsieve::daemon

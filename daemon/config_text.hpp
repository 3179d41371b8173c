// Text as a configuration has it. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace gradsieve::daemon {

/// `text` as a TOML basic string, quotes included.
[[nodiscard]] std::string toml_text(std::string_view text);

}  // namespace gradsieve::daemon

#include "daemon/config_text.hpp"

#include <fmt/format.h>

namespace gradsieve::daemon {

std::string toml_text(std::string_view text) {
    std::string quoted = "\"";
    for (const char character : text) {
        const auto byte = static_cast<unsigned char>(character);
        if (character == '"' || character == '\\') quoted += '\\';
        if (byte < 0x20U || byte == 0x7FU) {
            quoted += fmt::format("\\u{:04X}", byte);
        } else {
            quoted += character;
        }
    }
    return quoted + '"';
}

}  // namespace gradsieve::daemon

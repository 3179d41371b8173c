// Words for errno. Any thread; allocates only the text it returns.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

namespace gradsieve::shm {

/// "No such file or directory (errno 2)".
[[nodiscard]] inline std::string errno_text(int error) {
    return std::generic_category().message(error) + " (errno " + std::to_string(error) + ")";
}

}  // namespace gradsieve::shm

// The status page as the commands need it: how the daemon is, what it last said, and the exit code that follows. Never
// waits for the daemon. Any thread.
#pragma once

#include "cli/exit_code.hpp"
#include "cli/status_view.hpp"

#include <string>

namespace gradsieve::cli {

struct PageReading {
    ExitCode code = ExitCode::kNeverRan;
    HealthView health;
    std::string document;  ///< "" if there is no page
};
/// `socket`: its path, "" = the usual places.
[[nodiscard]] PageReading read_page(const std::string& socket);
/// Whether there is a page to show (live, hung, dead or stopped).
[[nodiscard]] bool has_page(const PageReading& reading) noexcept;

}  // namespace gradsieve::cli

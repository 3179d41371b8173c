// Where the demonstration is plugged in: if cli/demo.cpp is there, it is built, and `gradsieve demo` hands its
// arguments over unread.
#pragma once

#include "cli/console.hpp"
#include "cli/exit_code.hpp"

#include <string>
#include <vector>

namespace gradsieve::cli {

/// `arguments`: what follows the word demo, --help included.
[[nodiscard]] ExitCode run_demo(const std::vector<std::string>& arguments, Console& console);

}  // namespace gradsieve::cli

// gradsieve: what runs on this node, and whether it is well.
#include "cli/commands.hpp"

#include <cstdio>
#include <exception>
#include <iostream>

int main(int argc, char** argv) {
    using namespace gradsieve::cli;  // NOLINT: the program is that namespace
    try {
        Console console{std::cout, std::cerr, look_of_stdout(), is_stdout_terminal()};
        const auto code = run_command_line({argv + 1, argv + argc}, console);
        std::cout.flush();
        return static_cast<int>(code);
    } catch (const std::exception& error) {  // out of memory, a closed output
        std::fprintf(stderr, "gradsieve: %s\n", error.what());
        return static_cast<int>(ExitCode::kFailed);
    }
}

// A folder of its own with a socket path and a status page beside it, for tests of the tool; and what a command of it
// said.
#pragma once

#include "cli/commands.hpp"
#include "shm/local_socket.hpp"
#include "shm/status_page.hpp"
#include "tests/cli/golden.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace gradsieve::cli {

/// What a command left behind. `Code`: ExitCode where it ran in this process, int where it was one by itself.
template <typename Code>
struct Ran {
    Code code;
    std::string out, error;
};
/// Runs the tool's command line in this process, with 100 columns, Unicode and no colour.
inline Ran<ExitCode> run_here(const std::vector<std::string>& arguments) {
    std::ostringstream out;
    std::ostringstream error;
    Console console{out, error, {100, 0, false, true}, false};
    const auto code = run_command_line(arguments, console);
    return {code, out.str(), error.str()};
}

class CliTest : public testing::Test {
protected:
    CliTest() {
        auto pattern = (std::filesystem::temp_directory_path() / "gradsieve-cli-XXXXXX").string();
        folder_ = ::mkdtemp(pattern.data());
    }
    ~CliTest() override { std::filesystem::remove_all(folder_); }

    [[nodiscard]] const std::string& folder() const { return folder_; }
    [[nodiscard]] std::string socket() const { return folder_ + "/gradsieved.sock"; }
    /// A page as the daemon makes it, owned by this process. Its heartbeat is ahead, so that it stays fresh on a slow
    /// machine.
    [[nodiscard]] shm::StatusPageWriter make_page(const std::string& document) const {
        auto page = shm::StatusPageWriter::make(shm::status_page_path(socket()), "");
        EXPECT_TRUE(page.is_ok()) << page.status().to_string();
        EXPECT_TRUE(page->publish(document, SteadyClock().now() + std::chrono::hours(1)).is_ok());
        return std::move(*page);
    }

private:
    std::string folder_;
};

}  // namespace gradsieve::cli

// A child process of the demo with its output read line by line; it dies with us. One thread.
#pragma once

#include <sys/types.h>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradsieve::cli {

class DemoChild {
public:
    /// Starts `arguments[0]`; standard output is a pipe to us, standard error goes to the file `log`.
    DemoChild(std::vector<std::string> arguments, const std::string& log);
    ~DemoChild();  ///< SIGTERM, then SIGKILL after 5 s
    DemoChild(const DemoChild&) = delete;
    DemoChild& operator=(const DemoChild&) = delete;

    [[nodiscard]] int output_fd() const noexcept { return output_; }
    /// Whole lines that have arrived; does not wait.
    [[nodiscard]] std::vector<std::string> take_lines();
    /// Exit code (128 + signal if killed) once it has ended; does not wait.
    [[nodiscard]] std::optional<int> exit_code();
    /// Asks it to end and waits; at most 5 s before it is killed.
    void stop();

private:
    pid_t pid_ = -1;
    int output_ = -1;
    std::string partial_;
    std::optional<int> exit_code_;
};

/// Runs a program to its end; its exit code, or -1 if it did not end within 10 s. Output goes to /dev/null or
/// `ret_output`.
int run_program(std::vector<std::string> arguments, std::string* ret_output = nullptr);

}  // namespace gradsieve::cli

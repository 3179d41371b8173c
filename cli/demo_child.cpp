#include "cli/demo_child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <csignal>

namespace gradsieve::cli {

namespace {
constexpr auto kStopWithin = std::chrono::seconds(5);
constexpr auto kRunWithin = std::chrono::seconds(10);
constexpr int kChildPollMilliseconds = 20;
}  // namespace

DemoChild::DemoChild(std::vector<std::string> arguments, const std::string& log) {
    int pipe_ends[2];
    if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return;
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing outlives a killed demo
        if (::getppid() != parent) ::_exit(126);
        const int errors = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
        ::dup2(input, STDIN_FILENO);
        ::dup2(pipe_ends[1], STDOUT_FILENO);
        ::dup2(errors, STDERR_FILENO);
        ::execvp(argv[0], argv.data());
        ::_exit(127);
    }
    ::close(pipe_ends[1]);
    output_ = pipe_ends[0];
    ::fcntl(output_, F_SETFL, O_NONBLOCK);
}

DemoChild::~DemoChild() {
    stop();
    if (output_ >= 0) ::close(output_);
}

std::vector<std::string> DemoChild::take_lines() {
    char buffer[8192];
    for (ssize_t count = 0; (count = ::read(output_, buffer, sizeof(buffer))) > 0;)
        partial_.append(buffer, static_cast<std::size_t>(count));
    std::vector<std::string> lines;
    for (auto end = partial_.find('\n'); end != std::string::npos; end = partial_.find('\n')) {
        lines.push_back(partial_.substr(0, end));
        partial_.erase(0, end + 1);
    }
    return lines;
}

std::optional<int> DemoChild::exit_code() {
    int status = 0;
    if (pid_ > 0 && !exit_code_ && ::waitpid(pid_, &status, WNOHANG) == pid_)
        exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return exit_code_;
}

void DemoChild::stop() {
    if (pid_ <= 0 || exit_code()) return;
    ::kill(pid_, SIGTERM);
    const auto deadline = std::chrono::steady_clock::now() + kStopWithin;
    while (!exit_code()) {
        if (std::chrono::steady_clock::now() > deadline) ::kill(pid_, SIGKILL);
        ::poll(nullptr, 0, kChildPollMilliseconds);
    }
}

int run_program(std::vector<std::string> arguments, std::string* ret_output) {
    DemoChild child(std::move(arguments), "/dev/null");
    const auto deadline = std::chrono::steady_clock::now() + kRunWithin;
    std::string output;
    const auto collect = [&] {
        for (const auto& line : child.take_lines()) output += line + "\n";
    };
    while (!child.exit_code()) {
        collect();
        if (std::chrono::steady_clock::now() > deadline) return -1;
        struct pollfd entry {
            child.output_fd(), POLLIN, 0
        };
        ::poll(&entry, 1, kChildPollMilliseconds);
    }
    collect();
    if (ret_output != nullptr) *ret_output = std::move(output);
    return *child.exit_code();
}

}  // namespace gradsieve::cli

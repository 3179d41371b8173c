#include "mps_control.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace gradsieve::gpu_check {
namespace {

namespace fs = std::filesystem;
using e2e::Milliseconds;

constexpr auto kStart = Milliseconds(15'000);
constexpr auto kQuit = Milliseconds(20'000);

/// Starts the control daemon, and waits for a line or the end of its input, which comes even if the check is killed;
/// signals that are sent to the whole group only wake it.
constexpr const char* kKeeper = R"(
trap : TERM INT HUP
nvidia-cuda-mps-control -d --multiuser-server || exit
echo started
read -r line
echo quit | timeout 15 nvidia-cuda-mps-control
)";

std::string text_of(const fs::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}
std::string trimmed(std::string text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    return text;
}

/// Only a process that is what we take it for, since numbers are given again, and that has not ended: one that nobody
/// has waited for yet has no command line.
bool is_mps(pid_t process) {
    const auto folder = "/proc/" + std::to_string(process);
    return process > 0 && text_of(folder + "/comm").starts_with("nvidia-cuda-mps") &&
           !text_of(folder + "/cmdline").empty();
}
std::vector<pid_t> children_of(pid_t process) {
    const auto number = std::to_string(process);
    std::istringstream list(text_of("/proc/" + number + "/task/" + number + "/children"));
    std::vector<pid_t> children;
    for (pid_t child = 0; list >> child;) children.push_back(child);
    return children;
}
/// False at the deadline.
bool has_ended(pid_t process, Milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (is_mps(process)) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        ::poll(nullptr, 0, 20);
    }
    return true;
}

}  // namespace

ChildVariable::ChildVariable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    ::setenv(name_.c_str(), value.c_str(), 1);
}

ChildVariable::~ChildVariable() {
    if (before_)
        ::setenv(name_.c_str(), before_->c_str(), 1);
    else
        ::unsetenv(name_.c_str());
}

MpsControl::MpsControl() {
    auto pattern = (fs::temp_directory_path() / "gradsieve-mps-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = pattern;
    fs::permissions(folder_, fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
    for (const auto& inner : {pipe_folder(), folder_ + "/log"}) {
        fs::create_directory(inner);
        fs::permissions(inner, fs::perms::all);  // clients of every user make their own pipes there
    }
    start();
}

void MpsControl::start() {
    keeper_.emplace(std::vector<std::string>{"sh", "-c", kKeeper},
                    std::vector<std::string>{"CUDA_MPS_PIPE_DIRECTORY=" + pipe_folder(),
                                             "CUDA_MPS_LOG_DIRECTORY=" + folder_ + "/log"},
                    e2e::Orphan::kLives);
    const bool has_started = keeper_->wait_for_line("started", kStart).has_value();
    // Written a moment after the program that starts it has ended.
    const auto pid_file = fs::path(pipe_folder()) / "nvidia-cuda-mps-control.pid";
    const auto deadline = std::chrono::steady_clock::now() + kStart;
    while (has_started && control_ <= 0 && std::chrono::steady_clock::now() < deadline) {
        std::istringstream(text_of(pid_file)) >> control_;
        ::poll(nullptr, 0, 10);
    }
    if (has_started && is_mps(control_)) return;
    const auto said = trimmed(keeper_->output());
    why_not_ = "nvidia-cuda-mps-control -d --multiuser-server did not start" + (said.empty() ? "" : ": " + said);
}

MpsControl::~MpsControl() {
    if (!keeper_->wait_for_exit(Milliseconds(0))) {  // else nobody reads, and writing would end this program
        keeper_->say("quit");
        static_cast<void>(keeper_->wait_for_exit(kQuit));
    }
    if (!has_ended(control_, Milliseconds(5'000))) {
        for (const auto child : children_of(control_))
            if (is_mps(child)) ::kill(child, SIGKILL);
        ::kill(control_, SIGKILL);
        static_cast<void>(has_ended(control_, Milliseconds(5'000)));
    }
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
}

std::string MpsControl::log_tail() const {
    std::string all;
    for (const auto* name : {"/log/control.log", "/log/server.log"}) {
        const auto text = trimmed(text_of(folder_ + name));
        all += (all.empty() ? "" : " | ") + text.substr(text.size() > 400 ? text.size() - 400 : 0);
    }
    return all;
}

bool MpsControl::is_one_there() {
    return e2e::run({"sh", "-c", "echo get_server_list | timeout 5 nvidia-cuda-mps-control"}).code == 0;
}

}  // namespace gradsieve::gpu_check

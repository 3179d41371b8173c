// What the shm tests share: temporary folders, a session with both ends, children that are always reaped, and eyes on
// /dev/shm. Tests only.
#pragma once

#include "shm/session_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace gradsieve::shm {

/// A wait that is over long before any watchdog, unless something hangs.
inline TimePoint soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }
inline TimePoint past() { return std::chrono::steady_clock::now() - std::chrono::seconds(1); }

class TempFolder {
public:
    TempFolder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "gradsieve-shm-XXXXXX").string();
        GRADSIEVE_CHECK(::mkdtemp(pattern.data()) != nullptr);
        path_ = pattern;
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

inline UniqueFd duplicate(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

/// True once `fd` has something to read; false if that takes too long.
inline bool becomes_readable(int fd, int timeout_ms = 20'000) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, timeout_ms) == 1;
}

/// A forked child that runs `body` and exits with its answer (0 = good); killed and reaped at the latest here.
class Child {
public:
    template <typename Body>
    explicit Child(Body body) : pid_(::fork()) {
        GRADSIEVE_CHECK(pid_ >= 0);
        if (pid_ == 0) ::_exit(body());
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        if (pid_ < 0) return;
        kill_now();
        static_cast<void>(wait_status());
    }
    [[nodiscard]] pid_t pid() const noexcept { return pid_; }
    void kill_now() const noexcept { ::kill(pid_, SIGKILL); }
    /// Somebody else reaped it.
    void forget() noexcept { pid_ = -1; }
    /// The raw wait status.
    [[nodiscard]] int wait_status() noexcept {
        int status = -1;
        ::waitpid(std::exchange(pid_, -1), &status, 0);
        return status;
    }
    /// Exit code, or 128 + signal.
    [[nodiscard]] int wait_exit() noexcept {
        const auto status = wait_status();
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

private:
    pid_t pid_;
};

inline std::set<std::string> dev_shm_entries() {
    std::set<std::string> names;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) names.insert(entry.path());
    return names;
}

inline std::size_t open_descriptors() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
}

inline std::vector<TensorEntry> two_tensors() {
    return {{.name = "weight", .group = "", .shape = {3, 5}, .samples_max = 2, .has_second_moment = true},
            {.name = "bias", .group = "", .shape = {7}, .samples_max = 1, .has_second_moment = false}};
}

inline std::vector<ElementCount> elements_of(const std::vector<TensorEntry>& tensors) {
    std::vector<ElementCount> elements;
    for (const auto& tensor : tensors) elements.push_back(tensor.on_device ? 0 : tensor.elements());
    return elements;
}

inline AttachReply reply_for(const DaemonSession& session, const ResultArea& results, std::size_t tensor_count) {
    AttachReply reply;
    reply.control_bytes = session.control_bytes();
    reply.gradient_bytes = session.gradient_bytes();
    reply.result_bytes = results.size_bytes();
    for (std::uint32_t index = 0; index < tensor_count; ++index) {
        reply.result_offsets.push_back(results.offset_bytes(index));
    }
    return reply;
}

inline std::vector<UniqueFd> descriptors_for(const DaemonSession& session, const ResultArea& results, int doorbell) {
    std::vector<UniqueFd> descriptors;
    for (const int fd : {session.control_fd(), session.gradient_fd(), results.fd(), doorbell}) {
        descriptors.push_back(duplicate(fd));
    }
    return descriptors;
}

}  // namespace gradsieve::shm

#include "shm/process.hpp"

#include "base/id.hpp"
#include "shm/local_socket.hpp"
#include "shm/system_error.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

namespace gradsieve::shm {
namespace {

#ifdef SYS_pidfd_open
constexpr long kPidfdOpen = SYS_pidfd_open;
#else
constexpr long kPidfdOpen = 434;  // the same on every architecture
#endif

std::string read_file(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

ProcessSight look_at_process(pid_t pid) {
    if (pid <= 0) return {};
    const auto text = read_file("/proc/" + std::to_string(pid) + "/stat");
    // The name in parentheses may hold spaces and parentheses: fields count from the last ')', where field 3 follows.
    const auto name_end = text.rfind(')');
    if (name_end == std::string::npos) {
        const bool is_there = ::kill(pid, 0) == 0 || errno == EPERM;
        return {is_there ? ProcessPresence::kHidden : ProcessPresence::kGone, 0};
    }
    std::istringstream fields(text.substr(name_end + 1));
    std::string field;
    fields >> field;
    if (field == "Z" || field == "X") return {};
    for (int number = 4; number <= 22; ++number) fields >> field;
    ProcessSight sight{ProcessPresence::kRunning, 0};
    std::from_chars(field.data(), field.data() + field.size(), sight.start_ticks);
    return sight;
}

std::uint64_t boot_hash() { return tensor_id(read_file("/proc/sys/kernel/random/boot_id")); }

std::uint64_t pid_namespace() {
    struct stat seen {};
    return ::stat("/proc/self/ns/pid", &seen) == 0 ? seen.st_ino : 0;
}

Result<UniqueFd> open_process(pid_t pid) {
    UniqueFd process(static_cast<int>(::syscall(kPidfdOpen, pid, 0)));  // close-on-exec by itself
    if (process.is_open()) return process;
    const auto who = "process " + std::to_string(pid) + ": ";
    switch (errno) {
        case ESRCH: return Status(StatusCode::kNotFound, who + "is gone; allowed is one that runs; end its session");
        case EINVAL:
            return Status(StatusCode::kInvalidArgument,
                          who +
                              "no process id; allowed is 1 or more; run client and daemon where the daemon sees the "
                              "client's PID namespace (say, the daemon on the host)");
        default:
            return Status(StatusCode::kResourceExhausted, who + "pidfd_open: " + errno_text(errno) +
                                                              "; allowed is what the limit on open files leaves; raise "
                                                              "`ulimit -n` or LimitNOFILE=");
    }
}

}  // namespace gradsieve::shm

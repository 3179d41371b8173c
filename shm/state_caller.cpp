#include "shm/state_caller.hpp"

#include "shm/daemon_call.hpp"
#include "shm/system_error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace gradsieve::shm {

Result<AnsweredState> ask_for_state(const std::string& socket_path, const StateRequest& request, TimePoint deadline,
                                    std::optional<int> file) {
    GRADSIEVE_TRY(check_state_request(request));
    const auto descriptors = file ? std::span<const int>(&*file, 1) : std::span<const int>();
    GRADSIEVE_ASSIGN(auto message, call_daemon(socket_path, build_state_request(request), descriptors, deadline));
    GRADSIEVE_ASSIGN(auto reply, parse_state_reply(message.bytes));
    if (!reply.status.is_ok()) return reply.status;
    AnsweredState answered{.parts = std::move(reply.parts), .file = {}};
    if (!message.descriptors.empty()) answered.file = std::move(message.descriptors.front());
    if (request.kind == StateRequestKind::kRead && !answered.file.is_open())
        return Status(StatusCode::kCorrupt,
                      "state reply without the snapshot's descriptor: allowed is one; use "
                      "libgradsieve and gradsieved of the same release");
    return answered;
}

Result<Bytes> read_whole_file(int fd, const std::string& name) {
    const auto refuse = [&](StatusCode code, const std::string& why) {
        return Status(code, name + ": " + why + ": needed is a regular file that fits into memory; look at it");
    };
    struct stat seen {};
    if (::fstat(fd, &seen) != 0 || !S_ISREG(seen.st_mode)) return refuse(StatusCode::kUnavailable, "no regular file");
    Bytes bytes;
    try {
        bytes.resize(static_cast<std::size_t>(seen.st_size));
    } catch (const std::bad_alloc&) {
        return refuse(StatusCode::kResourceExhausted, "no memory for " + std::to_string(seen.st_size) + " bytes");
    }
    for (std::size_t done = 0; done < bytes.size();) {
        const auto count = ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return refuse(StatusCode::kUnavailable, count < 0 ? errno_text(errno) : "it became shorter");
        done += static_cast<std::size_t>(count);
    }
    return bytes;
}

}  // namespace gradsieve::shm

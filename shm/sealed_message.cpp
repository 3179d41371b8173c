#include "shm/sealed_message.hpp"

#include "shm/local_socket.hpp"
#include "shm/system_error.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace gradsieve::shm {
namespace {

constexpr int kMessageSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

}  // namespace

Status refuse_message(const std::string& seen) {
    return {StatusCode::kCorrupt,
            "local socket: " + seen + "; allowed is one whole message as docs/shared-memory.md has it; close it"};
}

Result<UniqueFd> seal_message(ByteView bytes) {
    UniqueFd memory(::memfd_create("gradsieve-message", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const auto refuse = [&bytes](const char* call) {
        return Status(StatusCode::kResourceExhausted, "local socket: message of " + std::to_string(bytes.size()) +
                                                          " bytes: " + call + ": " + errno_text(errno) +
                                                          "; allowed is what memory and `ulimit -n` leave; raise them");
    };
    if (!memory.is_open()) return refuse("memfd_create");
    for (std::size_t done = 0; done < bytes.size();) {
        const auto count = ::write(memory.get(), bytes.data() + done, bytes.size() - done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return refuse("write");
        done += static_cast<std::size_t>(count);
    }
    if (::fcntl(memory.get(), F_ADD_SEALS, kMessageSeals) != 0) return refuse("sealing");
    return memory;
}

Result<Bytes> unseal_message(int fd, std::uint64_t size_bytes) {
    if (size_bytes > kLocalMessageLimitBytes) return refuse_message(std::to_string(size_bytes) + " bytes in a memfd");
    const auto seals = ::fcntl(fd, F_GET_SEALS);
    struct stat seen {};
    if (seals < 0 || (seals & kMessageSeals) != kMessageSeals || ::fstat(fd, &seen) != 0 ||
        static_cast<std::uint64_t>(seen.st_size) != size_bytes) {
        return refuse_message("a long message that is no sealed memfd of " + std::to_string(size_bytes) + " bytes");
    }
    Bytes bytes(size_bytes);
    for (std::size_t done = 0; done < bytes.size();) {
        const auto count = ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return refuse_message("a memfd that cannot be read");
        done += static_cast<std::size_t>(count);
    }
    return bytes;
}

}  // namespace gradsieve::shm

#include "shm/process.hpp"
#include "shm/status_page.hpp"
#include "shm/status_page_layout.hpp"
#include "shm/system_error.hpp"
#include "shm/system_group.hpp"

#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>

namespace gradsieve::shm {
namespace {

/// Both copies change under a reader only if the daemon publishes twice while it reads one; thrice in a row it is not
/// luck.
constexpr int kAttempts = 3;
/// Larger than any version's copy: bounds what a damaged header can make the reader allocate.
constexpr std::uint64_t kCapacityLimitBytes = std::uint64_t{256} << 20U;

Status corrupt(const std::string& path, const std::string& seen) {
    return {StatusCode::kCorrupt,
            "status page " + path + ": " + seen +
                "; allowed is a page that gradsieved wrote; restart gradsieved, which makes a new "
                "one"};
}

Status refuse_open(const std::string& path, int error) {
    if (error == ENOENT || error == ENOTDIR) {
        return {StatusCode::kNotFound, "status page " + path + ": " + errno_text(error) +
                                           "; no gradsieved has run there; start it (`systemctl start gradsieved`, or "
                                           "run `gradsieved` in the foreground), or set GRADSIEVE_SOCKET"};
    }
    struct stat seen {};
    const auto group = ::stat(path.c_str(), &seen) == 0 ? group_text(seen.st_gid) : std::string("that owns it");
    return {StatusCode::kPermissionDenied, "status page " + path + ": " + errno_text(error) +
                                               "; allowed are its owner and group; join the group " + group +
                                               ", or run this as its owner"};
}

/// The bytes at `offset`; shorter if the file is.
Bytes read_at(int fd, std::uint64_t offset, std::uint64_t count_bytes) {
    Bytes bytes(count_bytes);
    std::size_t done = 0;
    while (done < bytes.size()) {
        const auto count = ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        done += static_cast<std::size_t>(count);
    }
    bytes.resize(done);
    return bytes;
}

Status check_header(const std::string& path, const StatusPageHeader& header) {
    if (header.magic != kStatusMagic) return corrupt(path, "it does not start like one");
    if (header.version != kStatusPageVersion) {
        return {StatusCode::kVersionMismatch, "status page " + path + ": written in version " +
                                                  std::to_string(header.version) + "; this program reads version " +
                                                  std::to_string(kStatusPageVersion) +
                                                  "; install gradsieve and gradsieved of the same release"};
    }
    if (header.capacity_bytes > kCapacityLimitBytes) {
        return corrupt(path, "copies of " + std::to_string(header.capacity_bytes) + " bytes");
    }
    return {};
}

/// The document of one copy if it is whole.
std::optional<std::string> read_copy(int fd, std::uint64_t offset, const StatusCopyHead& head, std::uint64_t capacity) {
    if (head.sequence == 0 || head.sequence % 2 != 0 || head.length_bytes > capacity) return std::nullopt;
    const auto bytes = read_at(fd, offset + kStatusCopyHeadBytes, head.length_bytes);
    if (bytes.size() != head.length_bytes || status_checksum(head.sequence, bytes) != head.checksum)
        return std::nullopt;
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::optional<std::string> read_newest(int fd, std::uint64_t capacity) {
    struct Copy {
        std::uint64_t offset;
        StatusCopyHead head;
    };
    std::array<Copy, 2> copies{};
    for (std::uint64_t index = 0; index < 2; ++index) {
        const auto offset = status_copy_offset(index, capacity);
        copies[index] = {offset, parse_status_copy_head(read_at(fd, offset, kStatusCopyHeadBytes))};
    }
    if (copies[0].head.sequence < copies[1].head.sequence) std::swap(copies[0], copies[1]);
    for (const auto& copy : copies) {
        if (auto document = read_copy(fd, copy.offset, copy.head, capacity)) return document;
    }
    return std::nullopt;
}

bool is_process_there(const StatusPageHeader& header, bool is_fresh) {
    // Where the process cannot be seen, the heartbeat decides, and a page from before a reboot is nobody's. The boot id
    // alone proves nothing: in a container, a service with ProtectKernelTunables= reads another one than its users do.
    const bool may_live = is_fresh || header.boot_hash == boot_hash();
    if (header.pid_namespace != pid_namespace()) return may_live;
    const auto sight = look_at_process(static_cast<pid_t>(header.pid));
    if (sight.presence == ProcessPresence::kHidden) return may_live;
    return sight.presence == ProcessPresence::kRunning && sight.start_ticks == header.start_ticks;
}

DaemonHealth judge(const StatusPageHeader& header, Duration heartbeat_age, Duration hung_after) {
    if (header.state == StatusPageState::kStopped) return DaemonHealth::kStopped;
    const bool is_fresh = heartbeat_age <= hung_after;
    if (!is_process_there(header, is_fresh)) return DaemonHealth::kDead;
    return is_fresh ? DaemonHealth::kLive : DaemonHealth::kHung;
}

}  // namespace

Result<StatusSnapshot> read_status_page(const std::string& path, Duration hung_after) {
    // O_NONBLOCK: opening a pipe that somebody put there must not wait.
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.is_open()) return refuse_open(path, errno);
    struct stat seen {};
    if (::fstat(file.get(), &seen) != 0 || !S_ISREG(seen.st_mode)) return corrupt(path, "no regular file");
    const auto header = parse_status_header(read_at(file.get(), 0, kStatusHeaderBytes));
    GRADSIEVE_TRY(check_header(path, header));
    std::optional<std::string> document;
    for (int attempt = 0; attempt < kAttempts && !document; ++attempt) {
        document = read_newest(file.get(), header.capacity_bytes);
    }
    if (!document) return corrupt(path, "neither copy of the document is whole");
    const auto now_ns = std::chrono::steady_clock::now().time_since_epoch().count();
    const Duration heartbeat_age(now_ns - std::clamp<std::int64_t>(header.heartbeat_ns, 0, now_ns));
    StatusSnapshot snapshot;
    snapshot.health = judge(header, heartbeat_age, hung_after);
    snapshot.pid = static_cast<int>(header.pid);
    snapshot.heartbeat_age_seconds = std::chrono::duration<double>(heartbeat_age).count();
    snapshot.document = std::move(*document);
    return snapshot;
}

}  // namespace gradsieve::shm

#include "shm/process.hpp"
#include "shm/status_page.hpp"
#include "shm/status_page_layout.hpp"
#include "shm/system_error.hpp"
#include "shm/system_group.hpp"

#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gradsieve::shm {
namespace {

constexpr mode_t kFileMode = 0640;

Status refuse(const std::string& path, const char* call, int error) {
    const auto what = "status page " + path + ": " + call + ": " + errno_text(error);
    switch (error) {
        case EACCES:
        case EPERM:
        case EROFS:
            return {StatusCode::kPermissionDenied,
                    what + "; allowed is a folder that this user may write; set [socket] path, or run as another user"};
        case ENOSPC:
        case EDQUOT:
        case ENOMEM:
            return {StatusCode::kResourceExhausted,
                    what + "; needed are " + std::to_string(status_file_bytes(kStatusCapacityBytes)) +
                        " bytes on that file system; make room there, or set [socket] path"};
        default:
            return {StatusCode::kFailedPrecondition,
                    what + "; allowed is an existing folder on a writable file system; set [socket] path"};
    }
}

Status write_at(int fd, std::uint64_t offset, ByteView bytes) {
    while (!bytes.empty()) {
        const auto count = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            return {StatusCode::kResourceExhausted, "status page: writing " + std::to_string(bytes.size()) +
                                                        " bytes: " + errno_text(errno) +
                                                        "; allowed is what its file system takes; make room there"};
        }
        offset += static_cast<std::uint64_t>(count);
        bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return {};
}

/// All blocks now, so that a full file system refuses the start and not a later publication.
Status commit(int fd, const std::string& path) {
    int error = 0;
    do {
        error = ::posix_fallocate(fd, 0, static_cast<off_t>(status_file_bytes(kStatusCapacityBytes)));
    } while (error == EINTR);
    return error == 0 ? Status() : refuse(path, "fallocate", error);
}

Status admit_readers(int fd, const std::string& path, const std::string& group) {
    if (!group.empty()) {
        GRADSIEVE_ASSIGN(const auto id, find_group(group));
        if (::fchown(fd, static_cast<uid_t>(-1), id) != 0) return refuse(path, "chown to its group", errno);
    }
    return ::fchmod(fd, kFileMode) == 0 ? Status() : refuse(path, "chmod", errno);
}

std::int64_t nanoseconds(TimePoint time) noexcept { return time.time_since_epoch().count(); }

}  // namespace

struct StatusPageWriter::Impl {
    explicit Impl(UniqueFd page) : file(std::move(page)) {}

    /// Odd sequence, document, even sequence: a reader that comes in between takes the other copy.
    Status write_copy(ByteView document) {
        ++publications;
        const auto offset = status_copy_offset(publications % 2, kStatusCapacityBytes);
        const auto finished = 2 * publications;
        const StatusCopyHead head{finished, document.size(), status_checksum(finished, document)};
        GRADSIEVE_TRY(write_at(file.get(), offset, build_status_copy_head({finished - 1, 0, 0})));
        GRADSIEVE_TRY(write_at(file.get(), offset + kStatusCopyHeadBytes, document));
        return write_at(file.get(), offset, build_status_copy_head(head));
    }

    UniqueFd file;
    std::uint64_t publications = 0;
};

StatusPageWriter::StatusPageWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StatusPageWriter::StatusPageWriter(StatusPageWriter&&) noexcept = default;
StatusPageWriter& StatusPageWriter::operator=(StatusPageWriter&&) noexcept = default;
StatusPageWriter::~StatusPageWriter() = default;

Result<StatusPageWriter> StatusPageWriter::make(const std::string& path, const std::string& group) {
    const auto unfinished_path = path + ".new";  // always the same name: a crash in here leaves at most one such file
    ::unlink(unfinished_path.c_str());
    UniqueFd file(::open(unfinished_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.is_open()) return refuse(path, "creating it", errno);
    auto impl = std::make_unique<Impl>(std::move(file));
    const auto complete = [&]() -> Status {
        const auto fd = impl->file.get();
        GRADSIEVE_TRY(commit(fd, path));
        GRADSIEVE_TRY(admit_readers(fd, path, group));
        StatusPageHeader header;
        header.pid = static_cast<std::uint32_t>(::getpid());
        header.start_ticks = look_at_process(::getpid()).start_ticks;
        header.boot_hash = boot_hash();
        header.pid_namespace = pid_namespace();
        header.heartbeat_ns = nanoseconds(std::chrono::steady_clock::now());
        GRADSIEVE_TRY(write_at(fd, 0, build_status_header(header)));
        GRADSIEVE_TRY(impl->write_copy(as_bytes("{}")));
        return ::rename(unfinished_path.c_str(), path.c_str()) == 0 ? Status() : refuse(path, "rename", errno);
    };
    if (auto status = complete(); !status.is_ok()) {
        ::unlink(unfinished_path.c_str());
        return status;
    }
    return StatusPageWriter(std::move(impl));
}

Status StatusPageWriter::publish(std::string_view document, TimePoint now) {
    if (document.size() > kStatusCapacityBytes) {
        return {StatusCode::kResourceExhausted, "status page: a document of " + std::to_string(document.size()) +
                                                    " bytes; allowed is up to " + std::to_string(kStatusCapacityBytes) +
                                                    "; leave tensors out"};
    }
    GRADSIEVE_TRY(impl_->write_copy(as_bytes(document)));
    beat(now);
    return {};
}

void StatusPageWriter::beat(TimePoint now) noexcept {
    // A failed beat needs no answer: readers see an old one, which is what it is.
    const auto time_ns = nanoseconds(now);
    static_cast<void>(::pwrite(impl_->file.get(), &time_ns, sizeof(time_ns), kStatusHeartbeatOffset) < 0);
}

void StatusPageWriter::set_stopped() noexcept {
    const auto state = static_cast<std::uint32_t>(StatusPageState::kStopped);
    static_cast<void>(::pwrite(impl_->file.get(), &state, sizeof(state), kStatusStateOffset) < 0);
}

std::size_t StatusPageWriter::capacity_bytes() const noexcept { return kStatusCapacityBytes; }

}  // namespace gradsieve::shm

#include "shm/segment.hpp"

#include "base/bytes.hpp"
#include "shm/memory_limit.hpp"
#include "shm/system_error.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>

namespace gradsieve::shm {
namespace {

namespace interprocess = boost::interprocess;

/// What boost::interprocess::mapped_region asks of something mappable.
class MemfdMapping {
public:
    MemfdMapping(int fd, Access access) : fd_(fd), access_(access) {}
    [[nodiscard]] interprocess::mapping_handle_t get_mapping_handle() const noexcept { return {fd_, false}; }
    [[nodiscard]] interprocess::mode_t get_mode() const noexcept {
        return access_ == Access::kReadWrite ? interprocess::read_write : interprocess::read_only;
    }

private:
    int fd_;
    Access access_;
};

Status refuse_size(const std::string& label, ByteCount bytes, const std::string& said, const MemoryLimit& limit) {
    return {StatusCode::kResourceExhausted,
            "shared memory '" + label + "': " + std::to_string(bytes) + " bytes asked, but " + said + "; " +
                std::to_string(limit.available_bytes) + " bytes can be had, bounded by " + limit.reason +
                "; raise that limit, or register fewer or smaller tensors"};
}

Result<interprocess::mapped_region> map(int fd, Access access, ByteCount bytes) {
    const MemfdMapping mapping(fd, access);
    try {
        return interprocess::mapped_region(mapping, mapping.get_mode(), 0, bytes);
    } catch (const interprocess::interprocess_exception& error) {
        return Status(
            StatusCode::kResourceExhausted,
            "mapping " + std::to_string(bytes) + " bytes: " + errno_text(error.get_native_error()) +
                "; allowed is what address space and vm.max_map_count leave; raise `ulimit -v` or the sysctl");
    }
}

int seals_of(Sharing sharing) noexcept {
    switch (sharing) {
        case Sharing::kPrivate: return F_SEAL_SHRINK;  // may grow, and may be adopted again after a restart
        case Sharing::kPeerWrites: return F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
        case Sharing::kPeerReads: return F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
    }
    return 0;
}

/// A memfd of `bytes` whose pages exist, so that no later store can fail.
Result<UniqueFd> make_committed(const std::string& label, ByteCount bytes) {
    const auto limit = memory_limit();
    if (bytes > limit.available_bytes) return refuse_size(label, bytes, "that is more than is left", limit);
    UniqueFd fd(
        ::memfd_create(label.substr(0, 240).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));  // the kernel's limit is 249
    if (!fd.is_open()) {
        return Status(StatusCode::kResourceExhausted,
                      "shared memory '" + label + "': memfd_create: " + errno_text(errno) +
                          "; allowed is what the limit on open files leaves; raise `ulimit -n` or LimitNOFILE=");
    }
    const auto size = static_cast<off_t>(bytes);
    if (::ftruncate(fd.get(), size) != 0) return refuse_size(label, bytes, "ftruncate: " + errno_text(errno), limit);
    int committed = 0;
    do {
        committed = ::fallocate(fd.get(), 0, 0, size);
    } while (committed != 0 && errno == EINTR);
    if (committed != 0) return refuse_size(label, bytes, "fallocate: " + errno_text(errno), limit);
    return fd;
}

}  // namespace

struct Segment::Impl {
    UniqueFd fd;
    interprocess::mapped_region region;
};

Segment::Segment(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Segment::Segment(Segment&&) noexcept = default;
Segment& Segment::operator=(Segment&&) noexcept = default;
Segment::~Segment() = default;

Result<Segment> Segment::make(const std::string& label, ByteCount bytes, Sharing sharing) {
    if (bytes == 0) {
        return Status(StatusCode::kInvalidArgument,
                      "shared memory '" + label + "': 0 bytes asked; allowed is 1 or more; ask for a page");
    }
    GRADSIEVE_ASSIGN(auto fd, make_committed(label, bytes));
    // Mapped before it is sealed: F_SEAL_FUTURE_WRITE refuses every writable mapping made after it, ours included.
    GRADSIEVE_ASSIGN(auto region, map(fd.get(), Access::kReadWrite, bytes));
    if (::fcntl(fd.get(), F_ADD_SEALS, seals_of(sharing)) != 0) {
        return Status(StatusCode::kUnimplemented, "shared memory '" + label + "': sealing: " + errno_text(errno) +
                                                      "; needed is Linux 5.1 or later; boot a newer kernel");
    }
    return Segment(std::make_unique<Impl>(Impl{std::move(fd), std::move(region)}));
}

Result<Segment> Segment::adopt(UniqueFd fd, ByteCount bytes, Access access, bool fork_visible) {
    struct stat seen {};
    if (bytes == 0 || ::fstat(fd.get(), &seen) != 0 || !S_ISREG(seen.st_mode)) {
        return Status(StatusCode::kCorrupt,
                      "descriptor " + std::to_string(fd.get()) + " for " + std::to_string(bytes) +
                          " bytes: not shared memory; allowed is a sealed memfd; end this session");
    }
    const auto seals = ::fcntl(fd.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return Status(StatusCode::kCorrupt, "shared memory of " + std::to_string(bytes) + " bytes: seals " +
                                                std::to_string(seals) +
                                                "; allowed is a memfd sealed against shrinking; end this session");
    }
    // Looked at after the seals: from here on it cannot become smaller.
    if (::fstat(fd.get(), &seen) != 0 || static_cast<ByteCount>(seen.st_size) != bytes) {
        return Status(StatusCode::kCorrupt, "shared memory: " + std::to_string(seen.st_size) + " bytes; allowed is " +
                                                std::to_string(bytes) + ", as announced; end this session");
    }
    GRADSIEVE_ASSIGN(auto region, map(fd.get(), access, bytes));
    if (!fork_visible && ::madvise(region.get_address(), region.get_size(), MADV_DONTFORK) != 0) {
        return Status(StatusCode::kInternal, "hiding shared memory from forked children: " + errno_text(errno) +
                                                 "; allowed is success; report it");
    }
    return Segment(std::make_unique<Impl>(Impl{std::move(fd), std::move(region)}));
}

std::span<std::byte> Segment::bytes() noexcept {
    return {static_cast<std::byte*>(impl_->region.get_address()), impl_->region.get_size()};
}
std::span<const std::byte> Segment::bytes() const noexcept {
    return {static_cast<const std::byte*>(impl_->region.get_address()), impl_->region.get_size()};
}
int Segment::fd() const noexcept { return impl_->fd.get(); }
ByteCount Segment::size_bytes() const noexcept { return impl_->region.get_size(); }

}  // namespace gradsieve::shm

#include "shm/local_socket.hpp"
#include "shm/socket_address.hpp"
#include "shm/system_error.hpp"
#include "shm/system_group.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <utility>

namespace gradsieve::shm {
namespace {

/// Clients that may queue up between two turns of the listener: more than ranks on one node.
constexpr int kBacklog = 256;
constexpr unsigned kFolderMode = 0755;

Status refuse(const std::string& path, const std::string& call, int error) {
    const bool is_denied = error == EACCES || error == EPERM || error == EROFS;
    return {is_denied ? StatusCode::kPermissionDenied : StatusCode::kFailedPrecondition,
            "socket " + path + ": " + call + ": " + errno_text(error) +
                "; allowed is a folder that this user may write; set [socket] path, or run as another user"};
}

std::string folder_of(const std::string& path) {
    const auto slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

/// mkdir -p; what exists stays as it is.
Status make_folders(const std::string& path, const std::string& folder) {
    for (std::size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
        const auto part = folder.substr(0, end);
        if (::mkdir(part.c_str(), kFolderMode) != 0 && errno != EEXIST) return refuse(path, "mkdir " + part, errno);
        if (end == std::string::npos) return {};
    }
}

/// One starting daemon per folder at a time, so that two cannot both find a stale socket and replace each other's new
/// one. A lock on the folder itself leaves no file behind and ends with the process.
Result<UniqueFd> lock_folder(const std::string& path, const std::string& folder) {
    UniqueFd lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock.is_open()) return refuse(path, "open " + folder, errno);
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
        return Status(StatusCode::kAlreadyExists, "socket " + path + ": another process is just making one in " +
                                                      folder + "; allowed is one at a time; try again in a moment");
    }
    return lock;
}

/// Ok if there is nothing or something stale, which is removed.
Status remove_stale(const std::string& path, const sockaddr_un& address) {
    struct stat seen {};
    if (::lstat(path.c_str(), &seen) != 0) return errno == ENOENT ? Status() : refuse(path, "stat", errno);
    if (!S_ISSOCK(seen.st_mode)) {
        return {StatusCode::kAlreadyExists, "socket " + path +
                                                ": a file that is no socket lies there; allowed is "
                                                "nothing or an old socket; remove it or set [socket] path"};
    }
    UniqueFd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe.is_open()) return refuse(path, "socket", errno);
    if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
        ucred holder{};
        socklen_t size_bytes = sizeof(holder);
        ::getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &holder, &size_bytes);
        return {StatusCode::kAlreadyExists, "socket " + path + ": process " + std::to_string(holder.pid) +
                                                " listens there; allowed is one daemon per socket; stop it or set "
                                                "[socket] path"};
    }
    if (errno == ECONNREFUSED) return ::unlink(path.c_str()) == 0 ? Status() : refuse(path, "unlink", errno);
    if (errno == EACCES || errno == EPERM) return refuse(path, "connect", errno);
    return {StatusCode::kAlreadyExists, "socket " + path + ": somebody holds it (" + errno_text(errno) +
                                            "); allowed is one daemon per socket; stop it or set [socket] path"};
}

Status set_group(const std::string& path, const std::string& name) {
    if (name.empty()) return {};
    GRADSIEVE_ASSIGN(const auto id, find_group(name));
    if (::chown(path.c_str(), static_cast<uid_t>(-1), id) == 0) return {};
    return refuse(path, "chown to group " + name, errno);
}

Status open_for_clients(int socket, const ListenerOptions& options) {
    GRADSIEVE_TRY(set_group(options.path, options.group));
    if (::chmod(options.path.c_str(), static_cast<mode_t>(options.mode & 0777U)) != 0) {
        return refuse(options.path, "chmod", errno);
    }
    // Only now: until it listens, everybody is refused, so nobody slips in between bind and chmod.
    return ::listen(socket, kBacklog) == 0 ? Status() : refuse(options.path, "listen", errno);
}

int socket_option(int socket, int option) {
    int value = -1;
    socklen_t size_bytes = sizeof(value);
    return ::getsockopt(socket, SOL_SOCKET, option, &value, &size_bytes) == 0 ? value : -1;
}

}  // namespace

LocalListener::LocalListener(LocalListener&& other) noexcept
    : socket_(std::move(other.socket_)),
      owned_path_(std::exchange(other.owned_path_, {})),
      owned_device_(other.owned_device_),
      owned_inode_(other.owned_inode_) {}

LocalListener& LocalListener::operator=(LocalListener&& other) noexcept {
    std::swap(socket_, other.socket_);
    std::swap(owned_path_, other.owned_path_);
    std::swap(owned_device_, other.owned_device_);
    std::swap(owned_inode_, other.owned_inode_);
    return *this;
}

LocalListener::~LocalListener() {
    if (owned_path_.empty()) return;
    struct stat seen {};
    if (::lstat(owned_path_.c_str(), &seen) != 0) return;
    if (seen.st_dev == owned_device_ && seen.st_ino == owned_inode_) ::unlink(owned_path_.c_str());
}

Result<LocalListener> LocalListener::make(const ListenerOptions& options) {
    GRADSIEVE_ASSIGN(const auto address, socket_address(options.path));
    const auto folder = folder_of(options.path);
    GRADSIEVE_TRY(make_folders(options.path, folder));
    GRADSIEVE_ASSIGN(const auto lock, lock_folder(options.path, folder));
    GRADSIEVE_TRY(remove_stale(options.path, address));
    LocalListener listener;
    listener.socket_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener.socket_.is_open()) return refuse(options.path, "socket", errno);
    if (::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        return refuse(options.path, "bind", errno);
    }
    struct stat made {};
    if (::lstat(options.path.c_str(), &made) != 0) return refuse(options.path, "stat", errno);
    listener.owned_path_ = options.path;
    listener.owned_device_ = made.st_dev;
    listener.owned_inode_ = made.st_ino;
    GRADSIEVE_TRY(open_for_clients(listener.fd(), options));
    return listener;
}

Result<LocalListener> LocalListener::adopt(UniqueFd socket) {
    const auto fd = socket.get();
    if (socket_option(fd, SO_DOMAIN) != AF_UNIX || socket_option(fd, SO_TYPE) != SOCK_SEQPACKET ||
        socket_option(fd, SO_ACCEPTCONN) != 1) {
        return Status(StatusCode::kInvalidArgument,
                      "descriptor " + std::to_string(fd) +
                          " from the service manager: no listening Unix socket of sequential packets; allowed is "
                          "ListenSequentialPacket= with a path; correct gradsieved.socket");
    }
    const auto flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        return Status(StatusCode::kInternal, "descriptor " + std::to_string(fd) + " from the service manager: fcntl: " +
                                                 errno_text(errno) + "; allowed is success; report it");
    }
    LocalListener listener;
    listener.socket_ = std::move(socket);
    return listener;
}

Result<LocalConnection> LocalListener::accept() {
    for (;;) {
        UniqueFd socket(::accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC));
        if (socket.is_open()) return LocalConnection(std::move(socket));
        switch (errno) {
            case EINTR:
            case ECONNABORTED: continue;
            case EAGAIN:
                return Status(StatusCode::kTimeout, "local socket: nobody waits; call again when it polls readable");
            default:
                return Status(StatusCode::kResourceExhausted, "local socket: accept: " + errno_text(errno) +
                                                                  "; allowed is what the limit on open files leaves; "
                                                                  "raise `ulimit -n` or LimitNOFILE=");
        }
    }
}

}  // namespace gradsieve::shm

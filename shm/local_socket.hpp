// The Unix socket between clients and the daemon: whole messages, descriptors along with them, and the kernel's word on
// who is at the other end. Messages of any size up to the limit (large ones travel in a sealed memfd). Each object is
// used by one thread at a time; every wait has a deadline.
#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"

#include <sys/types.h>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::shm {

inline constexpr std::size_t kLocalMessageLimitBytes = std::size_t{32} << 20U;
/// Messages up to this travel in the socket itself; it fits every default socket buffer.
inline constexpr std::size_t kInlineMessageLimitBytes = std::size_t{64} << 10U;
inline constexpr std::size_t kLocalDescriptorLimit = 8;

struct Credentials {
    pid_t pid = 0;
    uid_t uid = 0;
    gid_t gid = 0;
};
struct LocalMessage {
    Bytes bytes;
    std::vector<UniqueFd> descriptors;
};

class LocalConnection {
public:
    LocalConnection() = default;
    explicit LocalConnection(UniqueFd socket) : socket_(std::move(socket)) {}
    /// Errors: kUnavailable naming the socket path and what to do (start gradsieved, set GRADSIEVE_SOCKET, join the
    /// group).
    [[nodiscard]] static Result<LocalConnection> connect(const std::string& path, TimePoint deadline);
    /// Sends one message with up to kLocalDescriptorLimit descriptors (duplicated; the caller keeps its own). Does not
    /// wait. Errors: kInvalidArgument (too many bytes or descriptors), kUnavailable (other side closed, or does not
    /// read), kResourceExhausted (memory or descriptors).
    [[nodiscard]] Status send(ByteView bytes, std::span<const int> descriptors);
    /// Errors: kTimeout; kUnavailable (other side closed); kCorrupt; kResourceExhausted (descriptors). A deadline in
    /// the past = do not wait.
    [[nodiscard]] Result<LocalMessage> receive(TimePoint deadline);
    [[nodiscard]] Result<Credentials> peer_credentials() const;
    [[nodiscard]] int fd() const noexcept { return socket_.get(); }

private:
    UniqueFd socket_;
};

struct ListenerOptions {
    std::string path = {};
    unsigned mode = 0660;
    std::string group = {};  ///< empty = the process's own
};
class LocalListener {
public:
    /// Replaces a stale socket file, refuses a live one. Errors: kAlreadyExists (a daemon answers there; its pid),
    /// kPermissionDenied, kNotFound (group), kInvalidArgument (path too long for a socket address).
    [[nodiscard]] static Result<LocalListener> make(const ListenerOptions& options);
    /// Takes over a listening socket from the service manager. Errors: kInvalidArgument (not a listening Unix socket of
    /// sequential packets).
    [[nodiscard]] static Result<LocalListener> adopt(UniqueFd socket);
    /// Does not wait: kTimeout if nobody is there.
    [[nodiscard]] Result<LocalConnection> accept();
    [[nodiscard]] int fd() const noexcept { return socket_.get(); }
    /// Removes the socket file if this object made it and nobody replaced it since.
    ~LocalListener();
    LocalListener(LocalListener&&) noexcept;
    LocalListener& operator=(LocalListener&&) noexcept;

private:
    LocalListener() = default;
    UniqueFd socket_;
    std::string owned_path_;          ///< empty = not ours to remove
    std::uint64_t owned_device_ = 0;  ///< device and inode of the file that was made
    std::uint64_t owned_inode_ = 0;
};

/// A descriptor that polls readable once the process has died. Errors: kNotFound (already gone), kInvalidArgument (no
/// process id, as of a client in a PID namespace that the daemon does not see), kResourceExhausted.
[[nodiscard]] Result<UniqueFd> open_process(pid_t pid);

/// What decides where a daemon's socket is looked for, as a value, so that tests can describe any host.
struct SocketHints {
    std::string named;           ///< $GRADSIEVE_SOCKET
    std::string runtime_folder;  ///< $XDG_RUNTIME_DIR; counts if it is absolute
    unsigned user_id = 0;
    std::function<bool(const std::string&)> exists;
};
/// This process on this host.
[[nodiscard]] SocketHints read_socket_hints();
/// Where daemons put their sockets if nobody says so, nearest first: the user's own in $XDG_RUNTIME_DIR/gradsieve
/// (without that variable /run/user/UID/gradsieve), the system's in /run/gradsieve. Just `named` if there is one.
[[nodiscard]] std::vector<std::string> socket_candidates(const SocketHints& hints);
/// The first candidate that exists; where none does, the last one.
[[nodiscard]] std::string find_socket_path(const SocketHints& hints);
/// Where clients look: `find_socket_path` here.
[[nodiscard]] std::string default_socket_path();
/// The status page lies beside the socket: its folder + "/status".
[[nodiscard]] std::string status_page_path(const std::string& socket_path);

}  // namespace gradsieve::shm

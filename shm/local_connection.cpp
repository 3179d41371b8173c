#include "shm/local_socket.hpp"
#include "shm/sealed_message.hpp"
#include "shm/socket_address.hpp"
#include "shm/system_error.hpp"
#include "shm/system_group.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace gradsieve::shm {
namespace {

/// First byte of every message.
enum class Carriage : std::uint8_t {
    kInline = 0,  ///< the message follows
    kMemfd = 1,   ///< u64 size follows; the bytes are in a sealed memfd, the first descriptor
};
constexpr std::size_t kMemfdHeadBytes = 1 + sizeof(std::uint64_t);
/// The kernel passes at most SCM_MAX_FD = 253 along; with room for all, MSG_CTRUNC can only mean that this process may
/// open no more.
constexpr std::size_t kKernelDescriptorLimit = 253;

Status closed() {
    return {StatusCode::kUnavailable,
            "local socket: the other side has closed it; allowed is an open one; connect again"};
}

Duration time_left(TimePoint deadline) {
    return std::max<Duration>(deadline - std::chrono::steady_clock::now(), Duration::zero());
}

timeval as_timeval(Duration duration) {
    const auto microseconds = std::chrono::ceil<std::chrono::microseconds>(duration).count();
    return {microseconds / 1'000'000, microseconds % 1'000'000};
}

std::string group_of(const std::string& path) {
    struct stat seen {};
    return ::stat(path.c_str(), &seen) == 0 ? group_text(seen.st_gid) : "that owns it";
}

Status refuse_connect(const std::string& path, int error) {
    std::string advice;
    switch (error) {
        case ENOENT:
        case ENOTDIR:
        case ECONNREFUSED:
            advice =
                "no gradsieved listens there; start it (`systemctl start gradsieved`, or run `gradsieved` in the "
                "foreground), or set GRADSIEVE_SOCKET to where it listens";
            break;
        case EACCES:
        case EPERM:
            advice =
                "this user may not use it; join the group " + group_of(path) +
                " (`adduser USER GROUP`, then log in again), or run your own `gradsieved` and set GRADSIEVE_SOCKET";
            break;
        case EAGAIN: advice = "gradsieved accepts nobody right now; look at `gradsieve status` and try again"; break;
        default: advice = "allowed is a socket on which gradsieved listens; set GRADSIEVE_SOCKET to it"; break;
    }
    return {StatusCode::kUnavailable, "connecting to " + path + ": " + errno_text(error) + "; " + advice};
}

std::vector<UniqueFd> take_descriptors(msghdr& header) {
    std::vector<UniqueFd> descriptors;
    for (auto* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        const auto count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t index = 0; index < count; ++index) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(part) + index * sizeof(int), sizeof(int));
            descriptors.emplace_back(fd);
        }
    }
    return descriptors;
}

Result<LocalMessage> parse_message(ByteView bytes, std::vector<UniqueFd> descriptors) {
    ByteReader reader(bytes);
    const auto carriage = reader.read<std::uint8_t>();
    LocalMessage message;
    if (carriage == static_cast<std::uint8_t>(Carriage::kInline)) {
        const auto rest = reader.read_bytes(reader.remaining_bytes());
        message.bytes.assign(rest.begin(), rest.end());
    } else if (carriage == static_cast<std::uint8_t>(Carriage::kMemfd)) {
        const auto size_bytes = reader.read<std::uint64_t>();
        if (!reader.is_done() || descriptors.empty()) return refuse_message("a long message without its memfd");
        GRADSIEVE_ASSIGN(message.bytes, unseal_message(descriptors.front().get(), size_bytes));
        descriptors.erase(descriptors.begin());
    } else {
        return refuse_message("first byte " + std::to_string(carriage));
    }
    if (descriptors.size() > kLocalDescriptorLimit) {
        return refuse_message(std::to_string(descriptors.size()) + " descriptors, more than " +
                              std::to_string(kLocalDescriptorLimit));
    }
    message.descriptors = std::move(descriptors);
    return message;
}

/// Waits until there is something to read or `deadline`; a past one only looks.
Status wait_readable(int fd, TimePoint deadline) {
    for (;;) {
        const auto left = time_left(deadline);
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
        const timespec until{seconds.count(), (left - seconds).count()};
        pollfd entry{fd, POLLIN, 0};
        const auto count = ::ppoll(&entry, 1, &until, nullptr);
        if (count > 0) return {};
        if (count < 0 && errno != EINTR) return refuse_message("poll: " + errno_text(errno));
        if (count == 0 && time_left(deadline) == Duration::zero()) {
            return {StatusCode::kTimeout,
                    "local socket: no message until the deadline; allowed is any later one; call "
                    "again, or look at `gradsieve status`"};
        }
    }
}

Status refuse_send(int error) {
    switch (error) {
        case EPIPE:
        case ECONNRESET:
        case ENOTCONN: return closed();
        case EAGAIN:
            return {
                StatusCode::kUnavailable,
                "local socket: the other side does not read its messages; allowed is what its buffer holds; close it"};
        case EMSGSIZE:
        case ENOBUFS:
        case ENOMEM:
        case ETOOMANYREFS:
            return {StatusCode::kResourceExhausted, "local socket: sending: " + errno_text(error) +
                                                        "; allowed is what net.core.wmem_max and `ulimit -n` leave; "
                                                        "raise them"};
        default: return {StatusCode::kInternal, "local socket: sending: " + errno_text(error) + "; report it"};
    }
}

Status send_packet(int fd, ByteView bytes, std::span<const int> descriptors) {
    iovec place{const_cast<std::byte*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE((kLocalDescriptorLimit + 1) * sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &place;
    header.msg_iovlen = 1;
    if (!descriptors.empty()) {
        header.msg_control = control.data();
        header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        auto* const part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
    }
    for (;;) {
        if (::sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return {};
        if (errno != EINTR) return refuse_send(errno);
    }
}

}  // namespace

Result<LocalConnection> LocalConnection::connect(const std::string& path, TimePoint deadline) {
    GRADSIEVE_ASSIGN(const auto address, socket_address(path));
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) return refuse_connect(path, errno);
    for (;;) {
        // Waits only while the daemon's queue of newcomers is full; 0 would mean for ever.
        const auto left = as_timeval(std::max<Duration>(time_left(deadline), std::chrono::microseconds(1)));
        ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left));
        if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) break;
        if (errno != EINTR) return refuse_connect(path, errno);
    }
    return LocalConnection(std::move(socket));
}

Status LocalConnection::send(ByteView bytes, std::span<const int> descriptors) {
    if (bytes.size() > kLocalMessageLimitBytes || descriptors.size() > kLocalDescriptorLimit) {
        return {StatusCode::kInvalidArgument, "local message of " + std::to_string(bytes.size()) + " bytes with " +
                                                  std::to_string(descriptors.size()) +
                                                  " descriptors; allowed is up to " +
                                                  std::to_string(kLocalMessageLimitBytes) + " and " +
                                                  std::to_string(kLocalDescriptorLimit) + "; send less"};
    }
    Bytes packet;
    ByteWriter writer(packet);
    if (bytes.size() <= kInlineMessageLimitBytes) {
        writer.write(static_cast<std::uint8_t>(Carriage::kInline));
        writer.write_bytes(bytes);
        return send_packet(fd(), packet, descriptors);
    }
    GRADSIEVE_ASSIGN(const auto memory, seal_message(bytes));
    writer.write(static_cast<std::uint8_t>(Carriage::kMemfd));
    writer.write(static_cast<std::uint64_t>(bytes.size()));
    std::vector<int> all{memory.get()};
    all.insert(all.end(), descriptors.begin(), descriptors.end());
    return send_packet(fd(), packet, all);
}

Result<LocalMessage> LocalConnection::receive(TimePoint deadline) {
    GRADSIEVE_TRY(wait_readable(fd(), deadline));
    Bytes packet(std::max(kInlineMessageLimitBytes + 1, kMemfdHeadBytes));
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kKernelDescriptorLimit * sizeof(int))> control{};
    iovec place{packet.data(), packet.size()};
    msghdr header{};
    header.msg_iov = &place;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t count = 0;
    do {
        count = ::recvmsg(fd(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno == ECONNRESET) return closed();
    if (count < 0 && errno == EAGAIN) return Status(StatusCode::kTimeout, "local socket: no message; call again");
    if (count < 0) return refuse_message("recvmsg: " + errno_text(errno));
    auto descriptors = take_descriptors(header);  // owned from here on, whatever else is wrong
    if (count == 0) return closed();
    if ((header.msg_flags & MSG_CTRUNC) != 0) {
        return Status(StatusCode::kResourceExhausted,
                      "local socket: some descriptors could not be received; allowed is what the limit on open files "
                      "leaves; raise `ulimit -n` or LimitNOFILE=");
    }
    if ((header.msg_flags & MSG_TRUNC) != 0) {
        return refuse_message("a message of more than " + std::to_string(packet.size()) + " bytes");
    }
    return parse_message(ByteView(packet).first(static_cast<std::size_t>(count)), std::move(descriptors));
}

Result<Credentials> LocalConnection::peer_credentials() const {
    ucred seen{};
    socklen_t size_bytes = sizeof(seen);
    if (::getsockopt(fd(), SOL_SOCKET, SO_PEERCRED, &seen, &size_bytes) != 0) {
        return Status(StatusCode::kUnavailable,
                      "local socket: SO_PEERCRED: " + errno_text(errno) + "; allowed is a connected socket; close it");
    }
    return Credentials{seen.pid, seen.uid, seen.gid};
}

}  // namespace gradsieve::shm

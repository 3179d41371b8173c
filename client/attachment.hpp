// One attachment to the daemon: the socket, the memory that came over it and who is at the other end. Connecting and
// asking are the starting thread's; afterwards the socket only tells whether the daemon lives. Never frees anything the
// daemon owns. Session calls are guarded as their comments in shm/ say.
#pragma once

#include "base/clock.hpp"
#include "base/status.hpp"
#include "client/options.hpp"
#include "client/registry.hpp"
#include "shm/device_message.hpp"
#include "shm/local_socket.hpp"
#include "shm/session_memory.hpp"
#include "shm/state_message.hpp"

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::client {

/// Steps that the job goes on from, by name of the group.
using ResumePoints = std::map<std::string, shm::StateRequest>;

class Attachment {
public:
    /// Connects and asks to be attached, naming the steps to go on from before. Errors: as LocalConnection::connect
    /// (kUnavailable: which socket, what to do).
    [[nodiscard]] static Result<Attachment> open(const ResolvedOptions& options, const Registry& registry,
                                                 TimePoint deadline, const ResumePoints& resumes = {});

    /// Waits for the daemon's answer and maps what came with it. False: none until the deadline, call again.
    /// Errors: the daemon's refusal, kVersionMismatch, kCorrupt, kUnavailable (the daemon hung up).
    [[nodiscard]] Result<bool> receive_reply(const Registry& registry, TimePoint deadline);

    /// After a refusal by `receive_reply`: tensors that the daemon takes if they are staged, by index; it is empty if
    /// the refusal has other reasons. Indices are below the number of tensors.
    [[nodiscard]] std::span<const std::uint32_t> host_only() const noexcept { return host_only_; }

    /// Only after `receive_reply` was true, as all below. Errors: as LocalConnection::send.
    [[nodiscard]] Status send_bind_request(const shm::BindRequest& request, std::span<const int> descriptors);
    /// Waits for the reply to request `number`; drops those to earlier ones. Nothing: none until the deadline. One
    /// thread at a time. Errors: kCorrupt, kVersionMismatch, kUnavailable (the daemon hung up).
    [[nodiscard]] Result<std::optional<shm::BindReply>> receive_bind_reply(std::uint64_t number, TimePoint deadline);

    [[nodiscard]] shm::ClientSession& session() noexcept { return *session_; }
    /// For what must keep the memory mapped beyond this attachment.
    [[nodiscard]] std::shared_ptr<shm::ClientSession> shared_session() const noexcept { return session_; }
    /// Closes the socket; the memory stays mapped.
    void hang_up() { connection_ = shm::LocalConnection(); }
    /// Ok, or kUnavailable once the daemon closed the socket (it ended, however). One `poll`; does not wait.
    [[nodiscard]] Status check_daemon() const;
    /// "gradsieved (process 4711) is alive", "... gives no sign of life for 12 s": for texts of time-outs.
    [[nodiscard]] std::string describe_daemon() const;

private:
    Attachment(shm::LocalConnection connection, std::string socket_path);
    [[nodiscard]] std::string daemon_name() const;
    [[nodiscard]] Status gone() const;

    shm::LocalConnection connection_;
    std::string socket_path_;
    std::vector<std::uint32_t> host_only_;
    pid_t daemon_pid_ = 0;                         ///< 0 = not known
    std::shared_ptr<shm::ClientSession> session_;  ///< null until the reply came
};

}  // namespace gradsieve::client

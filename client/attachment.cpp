#include "client/attachment.hpp"

#include "shm/message_head.hpp"
#include "shm/status_page.hpp"

#include <poll.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

namespace gradsieve::client {
namespace {

constexpr std::size_t kReplyDescriptors = 4;  // control, gradient, result, doorbell

shm::AttachRequest make_request(const ResolvedOptions& options, const Registry& registry) {
    shm::AttachRequest request;
    request.job_name = options.name;
    request.run_id = options.run_id;
    request.rank = options.rank;
    request.world_size = options.world_size;
    request.codec = options.codec;
    request.non_finite = static_cast<shm::NonFinitePolicy>(options.non_finite);
    request.tensors.assign(registry.tensors().begin(), registry.tensors().end());
    return request;
}
static_assert(static_cast<int>(NonFinite::kFail) == static_cast<int>(shm::NonFinitePolicy::kFail));
static_assert(static_cast<int>(NonFinite::kSkipStep) == static_cast<int>(shm::NonFinitePolicy::kSkipStep));
static_assert(static_cast<int>(NonFinite::kZero) == static_cast<int>(shm::NonFinitePolicy::kZero));

/// The status page knows the daemon itself; the socket's credentials may be the service manager's, which listens for
/// it.
pid_t find_daemon_pid(const shm::LocalConnection& connection, const std::string& socket_path) {
    if (const auto page = shm::read_status_page(shm::status_page_path(socket_path)); page.is_ok()) return page->pid;
    const auto credentials = connection.peer_credentials();
    return credentials.is_ok() && credentials->pid > 1 ? credentials->pid : 0;
}

}  // namespace

Attachment::Attachment(shm::LocalConnection connection, std::string socket_path)
    : connection_(std::move(connection)), socket_path_(std::move(socket_path)) {
    daemon_pid_ = find_daemon_pid(connection_, socket_path_);
}

Result<Attachment> Attachment::open(const ResolvedOptions& options, const Registry& registry, TimePoint deadline,
                                    const ResumePoints& resumes) {
    GRADSIEVE_ASSIGN(auto connection, shm::LocalConnection::connect(options.socket_path, deadline));
    Attachment attachment(std::move(connection), options.socket_path);
    for (const auto& [group, resume] : resumes)
        GRADSIEVE_TRY(attachment.connection_.send(shm::build_state_request(resume), {}));
    GRADSIEVE_TRY(attachment.connection_.send(shm::build_attach_request(make_request(options, registry)), {}));
    return attachment;
}

Result<bool> Attachment::receive_reply(const Registry& registry, TimePoint deadline) {
    auto message = connection_.receive(deadline);
    if (!message.is_ok()) {
        if (message.error().code() == StatusCode::kTimeout) return false;
        if (message.error().code() == StatusCode::kUnavailable) return gone();
        return message.error();
    }
    if (shm::peek_message_type(message->bytes) == shm::MessageType::kStateReply) {  // a step that it does not take
        GRADSIEVE_ASSIGN(const auto refusal, shm::parse_state_reply(message->bytes));
        if (!refusal.status.is_ok()) return refusal.status;
        return Status(StatusCode::kCorrupt, daemon_name() +
                                                " answered a question that was not asked: allowed is a refusal "
                                                "or the attach's reply; make a new job, and report it");
    }
    GRADSIEVE_ASSIGN(auto reply, shm::parse_attach_reply(message->bytes));
    if (!reply.status.is_ok()) {
        const auto tensor_count = registry.tensors().size();
        const auto is_known = [&](std::uint32_t index) { return index < tensor_count; };
        if (std::ranges::all_of(reply.host_only, is_known)) host_only_ = std::move(reply.host_only);
        return reply.status;
    }
    if (message->descriptors.size() != kReplyDescriptors)
        return Status(StatusCode::kCorrupt,
                      daemon_name() + " sent " + std::to_string(message->descriptors.size()) +
                          " descriptors: allowed is " + std::to_string(kReplyDescriptors) +
                          "; raise the limit of open files (ulimit -n), or install matching versions");
    auto session = shm::ClientSession::adopt(registry.tensors(), reply, std::move(message->descriptors));
    if (!session.is_ok()) return session.error().with_context("memory from " + daemon_name());
    session_ = std::make_shared<shm::ClientSession>(std::move(*session));
    return true;
}

Status Attachment::send_bind_request(const shm::BindRequest& request, std::span<const int> descriptors) {
    auto status = connection_.send(shm::build_bind_request(request), descriptors);
    return status.code() == StatusCode::kUnavailable && !check_daemon().is_ok() ? gone() : status;
}

Result<std::optional<shm::BindReply>> Attachment::receive_bind_reply(std::uint64_t number, TimePoint deadline) {
    for (;;) {
        const auto message = connection_.receive(deadline);
        if (!message.is_ok()) {
            if (message.error().code() == StatusCode::kTimeout) return std::optional<shm::BindReply>();
            if (message.error().code() == StatusCode::kUnavailable) return gone();
            return message.error();
        }
        GRADSIEVE_ASSIGN(auto reply, shm::parse_bind_reply(message->bytes));
        if (reply.number == number) return std::optional(std::move(reply));
        if (reply.number > number)
            return Status(StatusCode::kCorrupt, daemon_name() + " answered bind request " +
                                                    std::to_string(reply.number) + ": allowed is up to " +
                                                    std::to_string(number) + "; make a new job, and report it");
    }
}

Status Attachment::check_daemon() const {
    pollfd entry{connection_.fd(), POLLRDHUP, 0};
    int ready = 0;
    do ready = ::poll(&entry, 1, 0);
    while (ready < 0 && errno == EINTR);
    return ready > 0 ? gone() : Status();
}

std::string Attachment::daemon_name() const {
    return daemon_pid_ > 0 ? "gradsieved (process " + std::to_string(daemon_pid_) + ")" : "gradsieved";
}

Status Attachment::gone() const {
    return {StatusCode::kUnavailable,
            daemon_name() + " is gone: it closed the connection at " + socket_path_ +
                "; allowed is a running daemon. Start it again (systemctl start gradsieved, or "
                "gradsieved in the foreground), then make a new job; its log says why it ended"};
}

std::string Attachment::describe_daemon() const {
    if (!check_daemon().is_ok()) return daemon_name() + " is gone";
    const auto page = shm::read_status_page(shm::status_page_path(socket_path_));
    if (page.is_ok() && page->health == shm::DaemonHealth::kHung)
        return daemon_name() + " gives no sign of life for " +
               std::to_string(std::lround(page->heartbeat_age_seconds)) + " s";
    return daemon_name() + " is alive";
}

}  // namespace gradsieve::client

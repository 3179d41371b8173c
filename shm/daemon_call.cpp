#include "shm/daemon_call.hpp"

namespace gradsieve::shm {

Result<LocalMessage> call_daemon(const std::string& socket_path, ByteView request, std::span<const int> descriptors,
                                 TimePoint deadline) {
    GRADSIEVE_ASSIGN(auto connection, LocalConnection::connect(socket_path, deadline));
    GRADSIEVE_TRY(connection.send(request, descriptors));
    auto message = connection.receive(deadline);
    if (message.is_ok() || message.error().code() != StatusCode::kUnavailable) return message;
    return Status(StatusCode::kUnavailable, "gradsieved at " + socket_path +
                                                " closed the connection without an answer: allowed is a running "
                                                "daemon of this release; start it, then ask again");
}

}  // namespace gradsieve::shm

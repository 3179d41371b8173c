#include "shm/trace_caller.hpp"

#include "shm/local_socket.hpp"

namespace gradsieve::shm {

namespace {
/// How much later than it promised a daemon may answer.
constexpr Duration kGrace = std::chrono::seconds(5);
}  // namespace

Result<TraceReply> ask_for_trace(const std::string& socket_path, const TraceRequest& request) {
    GRADSIEVE_TRY(check_trace_request(request));
    const auto deadline = SteadyClock().now() + std::chrono::milliseconds(request.timeout_ms) + kGrace;
    GRADSIEVE_ASSIGN(auto connection, LocalConnection::connect(socket_path, deadline));
    GRADSIEVE_TRY(connection.send(build_trace_request(request), {}));
    const auto message = connection.receive(deadline);
    if (message.is_ok()) return parse_trace_reply(message->bytes);
    if (message.error().code() == StatusCode::kUnavailable)
        return Status(StatusCode::kUnavailable, "gradsieved at " + socket_path +
                                                    " closed the connection without an answer: allowed is a running "
                                                    "daemon of this release; start it, then ask again");
    if (message.error().code() == StatusCode::kTimeout)
        return Status(StatusCode::kTimeout,
                      "gradsieved at " + socket_path + " did not answer within " + std::to_string(request.timeout_ms) +
                          " ms and 5 s more: needed is a daemon that does not hang; look at gradsieve status");
    return message.error();
}

}  // namespace gradsieve::shm

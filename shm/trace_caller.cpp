#include "shm/trace_caller.hpp"

#include "shm/daemon_call.hpp"

namespace gradsieve::shm {

namespace {
/// How much later than it promised a daemon may answer.
constexpr Duration kGrace = std::chrono::seconds(5);
}  // namespace

Result<TraceReply> ask_for_trace(const std::string& socket_path, const TraceRequest& request) {
    GRADSIEVE_TRY(check_trace_request(request));
    const auto deadline = SteadyClock().now() + std::chrono::milliseconds(request.timeout_ms) + kGrace;
    const auto message = call_daemon(socket_path, build_trace_request(request), {}, deadline);
    if (message.is_ok()) return parse_trace_reply(message->bytes);
    if (message.error().code() == StatusCode::kTimeout)
        return Status(StatusCode::kTimeout,
                      "gradsieved at " + socket_path + " did not answer within " + std::to_string(request.timeout_ms) +
                          " ms and 5 s more: needed is a daemon that does not hang; look at gradsieve status");
    return message.error();
}

}  // namespace gradsieve::shm

#include "base/status.hpp"

#include <cstdio>
#include <cstdlib>

namespace gradsieve {

std::string_view status_code_name(StatusCode code) noexcept {
    switch (code) {
        case StatusCode::kOk: return "ok";
        case StatusCode::kInvalidArgument: return "invalid-argument";
        case StatusCode::kNotFound: return "not-found";
        case StatusCode::kAlreadyExists: return "already-exists";
        case StatusCode::kFailedPrecondition: return "failed-precondition";
        case StatusCode::kUnavailable: return "unavailable";
        case StatusCode::kTimeout: return "timeout";
        case StatusCode::kStepFailed: return "step-failed";
        case StatusCode::kResourceExhausted: return "resource-exhausted";
        case StatusCode::kPermissionDenied: return "permission-denied";
        case StatusCode::kCorrupt: return "corrupt";
        case StatusCode::kNonFinite: return "non-finite";
        case StatusCode::kBusy: return "busy";
        case StatusCode::kVersionMismatch: return "version-mismatch";
        case StatusCode::kUnimplemented: return "unimplemented";
        case StatusCode::kInternal: return "internal";
        case StatusCode::kMismatch: return "mismatch";
        case StatusCode::kPeerFailed: return "peer-failed";
        case StatusCode::kCancelled: return "cancelled";
    }
    return "unknown";
}

std::string Status::to_string() const {
    if (is_ok()) return "ok";
    return std::string(status_code_name(code_)) + ": " + text_;
}

Status Status::with_context(std::string_view context) const {
    if (is_ok()) return *this;
    return {code_, std::string(context) + ": " + text_};
}

void check_failed(const char* condition, const char* file, int line) noexcept {
    std::fprintf(stderr, "gradsieve: broken invariant at %s:%d: %s\n", file, line, condition);
    std::abort();
}

}  // namespace gradsieve

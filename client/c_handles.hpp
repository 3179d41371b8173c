// What is behind the handles of the C ABI, and what its files share: exceptions stopped, statuses turned into numbers
// with a text per thread. Threads and ownership as gradsieve.h says.
#pragma once

#include "client/job_core.hpp"
#include "gradsieve/gradsieve.h"

#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <string>

struct gradsieve_tensor {
    gradsieve::client::JobCore* core = nullptr;  ///< outlived by the job that owns both
    std::uint32_t index = 0;
    std::string name;
    std::uint64_t elements = 0;
};
struct gradsieve_job {
    std::shared_ptr<gradsieve::client::JobCore> core;
    std::mutex m;
    std::deque<gradsieve_tensor> tensors;  ///< guarded by m; addresses stay
};

namespace gradsieve::client {

/// Per thread, so that one thread's error never changes under another's eyes.
[[nodiscard]] std::string& last_c_error();

[[nodiscard]] inline const char* text_or_empty(const char* text) { return text != nullptr ? text : ""; }

[[nodiscard]] inline Status null_argument(const char* name) {
    return {StatusCode::kInvalidArgument, std::string(name) + " is NULL: allowed is a valid pointer; pass one"};
}

[[nodiscard]] inline Timeout timeout_of(std::int64_t timeout_ms) { return Timeout(timeout_ms); }

/// Runs `body` and turns its Status, or an exception, into the number and text of the ABI.
template <typename Body>
gradsieve_status guarded(Body body) noexcept {
    try {
        const Status status = body();
        if (!status.is_ok()) last_c_error() = status.text();
        return static_cast<gradsieve_status>(status.code());
    } catch (const std::bad_alloc&) {
        last_c_error() = "out of memory";  // short enough to need none itself
        return GRADSIEVE_RESOURCE_EXHAUSTED;
    } catch (...) {
        last_c_error() = "internal error";
        return GRADSIEVE_INTERNAL;
    }
}

}  // namespace gradsieve::client

// What every fallible function returns. Holds a code (what the caller should do) and a text (what, value seen, what is
// allowed, what to do). Never thrown, never logged from here; any thread; the text is owned by the value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace gradsieve {

/// What the caller should do. Numbers are part of the C ABI (`gradsieve.h`) and of shared memory: never reused.
enum class StatusCode : std::uint16_t {
    kOk = 0,
    kInvalidArgument = 1,     ///< fix the argument
    kNotFound = 2,            ///< name something that exists
    kAlreadyExists = 3,       ///< it is taken: choose another name, or end the other holder
    kFailedPrecondition = 4,  ///< fix the stated condition first
    kUnavailable = 5,         ///< the other side is not there: retry later
    kTimeout = 6,             ///< the deadline passed and nothing is lost: call again
    kStepFailed = 7,          ///< this step has no result on any rank; state is as before it
    kResourceExhausted = 8,   ///< raise the stated limit, or ask for less
    kPermissionDenied = 9,    ///< use a user or group that is allowed
    kCorrupt = 10,            ///< bytes from outside do not parse: nothing was taken from them
    kNonFinite = 11,          ///< a NaN or infinity was handed in; state is untouched
    kBusy = 12,               ///< not now: an earlier call is still open; wait for it, then call again
    kVersionMismatch = 13,    ///< both versions are named: install matching ones
    kUnimplemented = 14,      ///< not offered yet
    kInternal = 15,           ///< our own broken promise: report it
    kMismatch = 16,           ///< ranks or nodes disagree; the first difference is named
    kPeerFailed = 17,         ///< another rank or node is gone; the job has ended
    kCancelled = 18,          ///< ended on request
};

/// Name of a code as users see it, e.g. "invalid-argument". Unknown numbers give "unknown".
[[nodiscard]] std::string_view status_code_name(StatusCode code) noexcept;

class [[nodiscard]] Status {
public:
    Status() = default;
    Status(StatusCode code, std::string text) : code_(code), text_(std::move(text)) {}

    [[nodiscard]] bool is_ok() const noexcept { return code_ == StatusCode::kOk; }
    [[nodiscard]] StatusCode code() const noexcept { return code_; }
    [[nodiscard]] const std::string& text() const noexcept { return text_; }
    /// "invalid-argument: ratio 1.5: allowed is (0, 1]; ..."; "ok" without an error.
    [[nodiscard]] std::string to_string() const;
    /// The same code with "context: " before the text: added once per layer on the way up.
    [[nodiscard]] Status with_context(std::string_view context) const;

private:
    StatusCode code_ = StatusCode::kOk;
    std::string text_;
};

/// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Status> {
public:
    using tl::expected<T, Status>::expected;
    Result(Status error)
        : tl::expected<T, Status>(tl::unexpect, std::move(error)) {
    }  // NOLINT: implicit, so that `return error;` reads well
    [[nodiscard]] bool is_ok() const noexcept { return this->has_value(); }
    [[nodiscard]] Status status() const { return this->has_value() ? Status{} : this->error(); }
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace gradsieve

/// For our own broken promises only, never for input: prints the condition and ends the process.
#define GRADSIEVE_CHECK(condition) \
    ((condition) ? static_cast<void>(0) : ::gradsieve::check_failed(#condition, __FILE__, __LINE__))

#define GRADSIEVE_CONCAT_INNER(a, b) a##b
#define GRADSIEVE_CONCAT(a, b) GRADSIEVE_CONCAT_INNER(a, b)

/// Returns the Status of `expression` from the enclosing function unless it is ok.
#define GRADSIEVE_TRY(expression)                                                                     \
    do {                                                                                              \
        if (::gradsieve::Status try_status_ = (expression); !try_status_.is_ok()) return try_status_; \
    } while (false)

/// `GRADSIEVE_ASSIGN(auto value, function());` : unwraps a Result or returns its Status.
#define GRADSIEVE_ASSIGN(declaration, expression) \
    GRADSIEVE_ASSIGN_INNER(declaration, expression, GRADSIEVE_CONCAT(assign_result_, __LINE__))
#define GRADSIEVE_ASSIGN_INNER(declaration, expression, result) \
    auto result = (expression);                                 \
    if (!result.has_value()) return result.error();             \
    declaration = std::move(*result)

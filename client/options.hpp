// Turns what a program asked for (`JobOptions`) and what its launcher left in the environment into one job identity.
// Reads the environment once, in `resolve_options`; must never talk to the daemon. Plain values; any thread.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"
#include "gradsieve/gradsieve.hpp"

#include <string>

namespace gradsieve::client {

struct ResolvedOptions {
    std::string name;
    std::string run_id;
    Rank rank = 0;
    std::uint32_t world_size = 1;
    std::string codec;  ///< empty = what the daemon is configured for
    NonFinite non_finite = NonFinite::kFail;
    std::string socket_path;
    std::uint32_t check_every = 0;   ///< steps; 0 = never
    bool requires_cuda_ipc = false;  ///< staging is an error of `start`
    std::string cuda_driver{};       ///< library to load once a tensor is bound to device memory

    /// "job 'resnet' (run 'default', rank 0 of 4)": how error texts name this job.
    [[nodiscard]] std::string label() const;
};

/// Errors: kInvalidArgument naming the option or the variable, the value seen, what is allowed and what to set.
[[nodiscard]] Result<ResolvedOptions> resolve_options(const JobOptions& options);

/// A name that can be shown, logged and sent: 1 .. `limit_bytes` bytes of printable UTF-8. `what` starts the text.
[[nodiscard]] Status check_name(std::string_view what, std::string_view name, std::size_t limit_bytes);

}  // namespace gradsieve::client

// Looks at TCP ports from outside: who listens here, and does anybody listen there. Any thread; waits as long as told.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace gradsieve::cli {

/// Who listens on a local TCP port. `pid` 0: somebody whose process this user may not look into.
struct Listener {
    std::int64_t pid = 0;
    std::string program;
};
[[nodiscard]] std::optional<Listener> find_listener(std::uint16_t port);

/// Resolves and connects. "" = connected; else what happened, in words. `ret_address` gets the numeric address tried.
/// Name servers may take longer than `patience`: the caller waits elsewhere (`check_peers`).
[[nodiscard]] std::string try_connect(const std::string& host, std::uint16_t port, std::chrono::milliseconds patience,
                                      std::string& ret_address);

}  // namespace gradsieve::cli

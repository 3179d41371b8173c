// What a daemon or a rank may have left behind: files, processes, descriptors and mappings. Any thread.
#pragma once

#include <sys/types.h>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace gradsieve::survive {

/// Names in a folder; empty if there is none.
[[nodiscard]] std::set<std::string> names_in(const std::string& folder);
/// Lines for what `folder` has and `allowed` has not.
[[nodiscard]] std::vector<std::string> strangers(const std::string& folder, const std::set<std::string>& allowed);
/// Processes, but our own, whose command line has `text`.
[[nodiscard]] std::vector<std::string> processes_with(const std::string& text);

/// Of a living process, from /proc.
struct Holdings {
    std::uint64_t descriptors = 0;
    std::uint64_t mappings = 0;         ///< lines of its maps
    std::uint64_t memory_mappings = 0;  ///< those of memfds
    std::uint64_t resident_bytes = 0;
};
[[nodiscard]] Holdings holdings_of(pid_t pid);

/// A pinned snapshot (docs/state-format.md): the hash of its values and, where they are residuals alone, their sum.
struct Kept {
    std::string file;
    std::uint64_t digest = 0;
    double sum = 0;
};
/// By ascending name. Errors: std::runtime_error, if one is not whole.
[[nodiscard]] std::vector<Kept> pinned_in(const std::string& folder);

}  // namespace gradsieve::survive

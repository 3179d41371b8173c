// How much memory may still be committed: asked before a segment is made, because a memory cgroup answers an
// allocation too many with the OOM killer, not with an error. Reads /proc and cgroup v2; any thread; keeps nothing.
#pragma once

#include "base/id.hpp"

#include <string>

namespace gradsieve::shm {

struct MemoryLimit {
    ByteCount available_bytes = 0;
    std::string reason;  ///< what bounds it and how to raise it, e.g. "memory.max of /system.slice/gradsieved.service"
};

/// The tightest of: the system's MemAvailable plus free swap, memory.max less what is in use of this process's cgroups
/// (v2, up to the root), RLIMIT_FSIZE (which counts for memfds) and RLIMIT_AS. Unreadable files count as no limit.
[[nodiscard]] MemoryLimit memory_limit();

/// The same with the roots of /proc and of the cgroup file system given, for tests.
[[nodiscard]] MemoryLimit memory_limit_under(const std::string& proc_root, const std::string& cgroup_root);

}  // namespace gradsieve::shm

// What the tool's exit status means; part of its interface (gradsieve(1)), so numbers are never reused.
#pragma once

namespace gradsieve::cli {

enum class ExitCode : int {
    kOk = 0,          ///< done; for status and peers: the daemon is live
    kFailed = 1,      ///< wrong usage, a configuration that is refused, a failed check
    kHung = 3,        ///< the daemon's process is there, but its heartbeat is not
    kDead = 4,        ///< the daemon is gone without saying goodbye
    kStopped = 5,     ///< the daemon was stopped
    kNeverRan = 6,    ///< no daemon has run at that socket
    kUnreadable = 7,  ///< the status page is there but cannot be read: permissions, version, corrupt
};

}  // namespace gradsieve::cli

// Tells whether this is still the process that opened the job, or a forked child of it: one page that the kernel clears
// in every child (MADV_WIPEONFORK), so that the check on the gradient's path is a load and no system call. Never
// changes after construction; any thread, also in the child.
#pragma once

#include "base/status.hpp"

#include <sys/types.h>
#include <string>

namespace gradsieve::client {

class ProcessMark {
public:
    ProcessMark();
    ProcessMark(const ProcessMark&) = delete;
    ProcessMark& operator=(const ProcessMark&) = delete;
    ~ProcessMark();

    /// False in every forked child, however it was forked. Cost: one load (or `getpid` where the kernel cannot clear
    /// pages).
    [[nodiscard]] bool is_same_process() const noexcept;
    /// Ok, or kFailedPrecondition naming the process that the handle belongs to.
    [[nodiscard]] Status check() const;

private:
    pid_t owner_;
    volatile unsigned char* page_ =
        nullptr;  ///< 1 in the owner, 0 in a child; null where the kernel has no MADV_WIPEONFORK
};

}  // namespace gradsieve::client

// Runs code in a forked child, without gtest's own machinery there: the child answers with its exit code.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

namespace gradsieve::client::test {

/// The child's exit code = what `body` returns; -1 if it did not get that far.
template <typename Body>
int exit_code_of_child(Body body) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(60);  // a child that hangs must not outlive the test
        ::_exit(body());
    }
    int state = 0;
    if (child < 0 || ::waitpid(child, &state, 0) != child || !WIFEXITED(state)) return -1;
    return WEXITSTATUS(state);
}

/// Maps a page of its own over the one that holds `address`, which must be free; null if it is not.
inline char* map_page_at(void* address) {
    const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    auto* const page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) & ~(page_bytes - 1));
    void* const mapped =
        ::mmap(page, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    return mapped == page ? static_cast<char*>(mapped) : nullptr;
}

}  // namespace gradsieve::client::test

#include "tests/survive/interruption.hpp"

#include <atomic>
#include <csignal>

namespace gradsieve::survive {

namespace {

std::atomic<int> came{0};
void note(int number) { came.store(number, std::memory_order_relaxed); }

}  // namespace

void note_interruptions() {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        const auto before = std::signal(number, note);
        if (before == SIG_IGN) std::signal(number, SIG_IGN);
    }
}

void throw_if_interrupted() {
    if (const int number = came.load(std::memory_order_relaxed); number != 0) throw Interrupted(number);
}

}  // namespace gradsieve::survive

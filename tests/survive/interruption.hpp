// Ctrl-C and SIGTERM end the command in good order: what was started is killed, namespaces and folders go. Any thread
// may ask.
#pragma once

#include <stdexcept>

namespace gradsieve::survive {

struct Interrupted : std::runtime_error {
    explicit Interrupted(int signal_number) : std::runtime_error("interrupted"), number(signal_number) {}
    int number;
};
/// From here on SIGINT, SIGTERM and SIGHUP are only noted; what is ignored stays ignored. Once, before any thread.
void note_interruptions();
/// Between waits. Errors: Interrupted, if a signal has come.
void throw_if_interrupted();

}  // namespace gradsieve::survive

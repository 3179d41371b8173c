// gradsieve status: the status page on a screen, once or each second.
#include "cli/commands.hpp"
#include "cli/render_status.hpp"
#include "cli/status_page_health.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <sstream>
#include <string>

namespace gradsieve::cli {

namespace {

std::size_t tensor_rows(const StatusOptions& options, const Console& console) {
    if (options.has_all) return SIZE_MAX;
    if (options.is_watch && console.look.height > 0)
        return std::clamp<std::size_t>(console.look.height / 2, 5, kDefaultTensorRows);
    return kDefaultTensorRows;
}

/// One screen; what went wrong goes to the error stream.
ExitCode show(const PageReading& reading, const StatusOptions& options, Console& console) {
    if (!has_page(reading)) {
        console.error << "gradsieve: " << reading.health.sentence() << '\n';
        return reading.code;
    }
    const auto view = parse_status_document(reading.document);
    if (!view.is_ok()) {
        console.out << render_health({}, reading.health, console.look);
        console.error << "gradsieve: " << view.error().text() << '\n';
        return ExitCode::kUnreadable;
    }
    console.out << render_status(*view, reading.health, console.look, tensor_rows(options, console));
    return reading.code;
}

/// The stop signals are blocked while it lives, so that they are waited for together with the second.
class StopSignals {
public:
    StopSignals() {
        ::sigemptyset(&signals_);
        for (const int signal : {SIGINT, SIGTERM, SIGWINCH}) ::sigaddset(&signals_, signal);
        ::pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    }
    ~StopSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;
    /// False if asked to stop; true after a second or a change of the window's size.
    [[nodiscard]] bool wait_a_second() const {
        const timespec second{1, 0};
        const int signal = ::sigtimedwait(&signals_, nullptr, &second);
        return signal != SIGINT && signal != SIGTERM;
    }

private:
    sigset_t signals_{};
    sigset_t before_{};
};

/// The screen from the top left corner on, each line's old rest and everything below wiped.
std::string redrawn(const std::string& screen) {
    std::string text = "\x1b[H";
    for (const char character : screen) text += character == '\n' ? std::string("\x1b[K\n") : std::string(1, character);
    return text + "\x1b[J";
}

/// Draws over the last screen line by line, so that nothing flickers; scrolls where there is no terminal.
ExitCode watch(const StatusOptions& options, Console& console) {
    const StopSignals signals;
    for (;;) {
        if (console.is_terminal) console.look = look_of_stdout();
        std::ostringstream screen;
        Console page{screen, screen, console.look, console.is_terminal};
        const auto code = show(read_page(options.socket), options, page);
        console.out << (console.is_terminal ? redrawn(screen.str()) : screen.str() + '\n');
        console.out.flush();
        if (!console.out || !signals.wait_a_second()) return code;
    }
}

}  // namespace

ExitCode run_status(const StatusOptions& options, Console& console) {
    if (options.is_watch) return watch(options, console);
    const auto reading = read_page(options.socket);
    if (!options.is_json) return show(reading, options, console);
    console.out << document_with_health(reading.document, reading.health);
    return reading.code;
}

}  // namespace gradsieve::cli

// gradsieved: reads the command line and the configuration, runs the daemon, minds signals and the watchdog.
#include "daemon/config.hpp"
#include "daemon/daemon.hpp"
#include "daemon/log.hpp"
#include "daemon/service.hpp"

#include <sys/signalfd.h>
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

namespace gradsieve::daemon {
namespace {

// Exit codes, also in gradsieved(8).
constexpr int kExitStopped = 0;
constexpr int kExitConfiguration = 2;
constexpr int kExitCannotStart = 3;
constexpr int kExitHung = 4;
constexpr int kExitLostGpu = 5;

constexpr Duration kLookEvery = std::chrono::milliseconds(500);
constexpr Duration kHungAfter = std::chrono::seconds(60);

sigset_t handled_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
    return signals;
}

void reload(Daemon& daemon, const ConfigQuery& query, Log& log) {
    notify_reloading();
    const auto fresh = load_config(query);
    if (fresh.is_ok())
        daemon.reload(*fresh);
    else
        log.error("configuration not applied: " + fresh.error().text());
    notify_ready(daemon.summary());
}

/// Until a signal ends it. The watchdog hears from us only while the conductor moves.
int mind(Daemon& daemon, const ConfigQuery& query, const sigset_t& signals, Log& log) {
    const auto watchdog = watchdog_interval();
    const SteadyClock clock;
    std::uint64_t tick_seen = daemon.tick();
    TimePoint moved = clock.now();
    const auto look_every = std::min(kLookEvery, watchdog.value_or(kLookEvery));
    while (true) {
        const auto whole = std::chrono::duration_cast<std::chrono::seconds>(look_every);
        const timespec wait{whole.count(), (look_every - whole).count()};
        const int number = ::sigtimedwait(&signals, nullptr, &wait);
        if (number == SIGHUP) reload(daemon, query, log);
        if (number == SIGTERM || number == SIGINT) return kExitStopped;
        if (daemon.needs_restart()) {
            log.error("a GPU is lost to this process: ending it, so that a new one can use the GPU");
            return kExitLostGpu;
        }
        const auto now = clock.now();
        if (daemon.tick() != tick_seen) {
            tick_seen = daemon.tick();
            moved = now;
            if (watchdog) notify_alive();
        } else if (!watchdog && now - moved > kHungAfter) {
            log.error("the conductor has not moved for 60 s: ending the process; please report this");
            return kExitHung;
        }
    }
}

int run(const ConfigQuery& query) {
    const auto config = load_config(query);
    if (!config.is_ok()) {
        std::fprintf(stderr, "gradsieved: %s\n", config.error().to_string().c_str());
        return kExitConfiguration;
    }
    const SteadyClock clock;
    Log log(parse_log_level(config->log_level).value_or(LogLevel::kInfo), make_log_sink(), clock);
    const auto signals = handled_signals();
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread: they inherit it
    std::signal(SIGPIPE, SIG_IGN);
    auto daemon = Daemon::start(*config, take_handed_descriptors(), log);
    if (!daemon.is_ok()) {
        log.error("cannot start: " + daemon.error().to_string());
        return kExitCannotStart;
    }
    log.info("gradsieved " GRADSIEVE_VERSION ": " + (*daemon)->summary());
    notify_ready((*daemon)->summary());
    const int code = mind(**daemon, query, signals, log);
    notify_stopping();
    if (code == kExitHung) std::_Exit(code);  // joining a hung thread would hang too
    log.info("stopping");
    (*daemon)->stop();
    log.info("stopped");
    return code;
}

}  // namespace
}  // namespace gradsieve::daemon

int main(int argc, char** argv) {
    CLI::App app{"gradsieved: averages gradients between machines for a fraction of the bytes"};
    app.footer(
        "Runs in the foreground until SIGTERM; SIGHUP applies a changed configuration.\n"
        "Without a file it is a working single node. Watch it with `gradsieve status`.\n"
        "Exit codes: 0 stopped, 2 configuration, 3 cannot start, 4 hung, 5 a GPU was lost.");
    gradsieve::daemon::ConfigQuery query;
    app.add_option("--config", query.file, "Configuration file (default: /etc/gradsieve/gradsieved.toml if it exists)");
    app.add_option("--node", query.node, "Which [[node]] this is (default: found by host name or address)");
    app.add_option("--socket", query.socket_path, "Socket for clients");
    app.add_option("--state", query.state_directory, "Folder for state");
    app.set_version_flag("--version", "gradsieved " GRADSIEVE_VERSION);
    CLI11_PARSE(app, argc, argv);
    return gradsieve::daemon::run(query);
}

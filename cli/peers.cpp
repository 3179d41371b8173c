// gradsieve peers: the other nodes' daemons, from the status page.
#include "cli/commands.hpp"
#include "cli/render_status.hpp"
#include "cli/status_page_health.hpp"

#include <ostream>

namespace gradsieve::cli {

ExitCode run_peers(const PeersOptions& options, Console& console) {
    const auto reading = read_page(options.socket);
    if (options.is_json) {
        console.out << peers_with_health(reading.document, reading.health);
        return reading.code;
    }
    if (!has_page(reading)) {
        console.error << "gradsieve: " << reading.health.sentence() << '\n';
        return reading.code;
    }
    const auto view = parse_status_document(reading.document);
    if (!view.is_ok()) {
        console.error << "gradsieve: " << view.error().text() << '\n';
        return ExitCode::kUnreadable;
    }
    console.out << render_health(view->daemon, reading.health, console.look);
    if (view->peers.empty()) {
        console.out << "no peers: a single node\n";
    } else {
        console.out << render_peers(view->peers, console.look);
    }
    return reading.code;
}

}  // namespace gradsieve::cli

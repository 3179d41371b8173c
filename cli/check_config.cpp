// gradsieve check-config: is the file right, and what are the values?
#include "cli/commands.hpp"

#include "daemon/config.hpp"

#include <ostream>

namespace gradsieve::cli {

ExitCode run_check_config(const CheckConfigOptions& options, Console& console) {
    const auto config = daemon::load_config({.file = options.file,
                                             .node = options.node,
                                             .socket_path = options.socket,
                                             .state_directory = options.state_directory});
    if (!config.is_ok()) {
        console.error << config.error().text() << '\n';
        return ExitCode::kFailed;
    }
    console.out << daemon::config_text(*config);
    return ExitCode::kOk;
}

}  // namespace gradsieve::cli

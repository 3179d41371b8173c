// gradsieve metrics: the status page as OpenMetrics text, to standard output or, whole or not at all, into a file for
// node_exporter's textfile collector. A dead daemon is something to tell, not a failure of this command.
#include "cli/commands.hpp"
#include "cli/open_metrics.hpp"
#include "cli/replaced_file.hpp"
#include "cli/status_page_health.hpp"

#include <ostream>

namespace gradsieve::cli {

ExitCode run_metrics(const MetricsOptions& options, Console& console) {
    auto reading = read_page(options.socket);
    auto status = has_page(reading) ? parse_status_document(reading.document) : Result<StatusView>(StatusView());
    if (!status.is_ok()) {
        console.error << "gradsieve: " << status.error().text() << '\n';
        reading.health.state = "unreadable";
    }
    const auto text = open_metrics_text(status.is_ok() ? *status : StatusView(), reading.health);
    if (options.output.empty()) {
        console.out << text;
        return ExitCode::kOk;
    }
    auto file = ReplacedFile::make(options.output);
    if (const auto written = file.is_ok() ? file->put(text) : file.status(); !written.is_ok()) {
        console.error << "gradsieve: " << written.text() << '\n';
        return ExitCode::kFailed;
    }
    return ExitCode::kOk;
}

}  // namespace gradsieve::cli

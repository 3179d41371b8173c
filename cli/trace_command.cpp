// gradsieve trace: asks the daemon to record a job's next steps, and writes them as a file for chrome://tracing and
// Perfetto. What was recorded before something went wrong is written, too: that is when somebody wants to see it.
#include "cli/chrome_trace.hpp"
#include "cli/commands.hpp"
#include "cli/human.hpp"
#include "cli/known_jobs.hpp"
#include "cli/replaced_file.hpp"
#include "cli/text_table.hpp"
#include "cli/trace_steps.hpp"
#include "shm/local_socket.hpp"
#include "shm/trace_caller.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <optional>
#include <ostream>

namespace gradsieve::cli {

namespace {

using Figures = std::array<PhaseFigures, kPhaseCount>;

std::string table_of(const Figures& figures, const Look& look) {
    const std::vector<Column> columns = {{"PHASE", false, 20, 9},
                                         {"MEDIAN ms", true, 0, 9},
                                         {"90 % ms", true, 0, 6},
                                         {"LONGEST ms", true, 0, 6},
                                         {"TIMES", true, 0, 5}};
    std::vector<Row> rows;
    for (std::size_t phase = 0; phase < kPhaseCount; ++phase) {
        const auto& figure = figures[phase];
        if (figure.count == 0) continue;
        rows.push_back({{std::string(phase_name(static_cast<Phase>(phase)))},
                        {fmt::format("{:.3f}", figure.median_ms)},
                        {fmt::format("{:.3f}", figure.p90_ms)},
                        {fmt::format("{:.3f}", figure.longest_ms)},
                        {count_text(figure.count)}});
    }
    return rows.empty() ? "" : render_table(columns, rows, look);
}

std::string json_of(const shm::TraceRequest& request, const shm::TraceReply& reply, const Figures& figures) {
    using Document = nlohmann::ordered_json;
    auto phases = Document::array();
    for (std::size_t phase = 0; phase < kPhaseCount; ++phase)
        if (figures[phase].count > 0)
            phases.push_back({{"phase", phase_name(static_cast<Phase>(phase))},
                              {"count", figures[phase].count},
                              {"median_ms", figures[phase].median_ms},
                              {"p90_ms", figures[phase].p90_ms},
                              {"longest_ms", figures[phase].longest_ms}});
    const Document document = {{"name", request.job_name},
                               {"run_id", request.run_id},
                               {"node", reply.node},
                               {"steps_asked", request.steps},
                               {"steps_ended", reply.steps_ended},
                               {"tensors", reply.tensors.size()},
                               {"events", reply.events.size()},
                               {"events_lost", reply.events_lost},
                               {"seconds", static_cast<double>(reply.end_ns - reply.begin_ns) / 1e9},
                               {"phases", std::move(phases)}};
    return document.dump(2, ' ', false, Document::error_handler_t::replace) + '\n';
}

std::string sentence_of(const TraceOptions& options, const shm::TraceRequest& request, const shm::TraceReply& reply) {
    return fmt::format(
        "{}: {} steps of job '{}' on {}, {} tensors, {}; open it in chrome://tracing or ui.perfetto.dev\n",
        options.output, reply.steps_ended, printable(request.job_name), printable(reply.node),
        count_text(reply.tensors.size()), time_text(static_cast<double>(reply.end_ns - reply.begin_ns) / 1e9));
}

Result<shm::TraceRequest> request_of(const TraceOptions& options, const std::string& socket) {
    shm::TraceRequest request{.number = 1,
                              .job_name = options.job,
                              .run_id = options.run,
                              .steps = options.steps,
                              .timeout_ms = options.timeout_s * 1000};
    if (!options.job.empty() && !options.run.empty()) return request;
    const auto jobs = known_jobs(socket);
    // Without a page there is no daemon to ask; that is said better by the socket than by a list of no jobs.
    if (jobs.empty()) GRADSIEVE_TRY(shm::LocalConnection::connect(socket, SteadyClock().now()).status());
    GRADSIEVE_ASSIGN(const auto job, choose_running_job(jobs, options.job, options.run));
    request.job_name = job.name;
    request.run_id = job.run_id;
    return request;
}

ExitCode fail(const Status& status, Console& console) {
    console.error << "gradsieve: " << status.text() << '\n';
    return ExitCode::kFailed;
}

}  // namespace

ExitCode run_trace(const TraceOptions& options, Console& console) {
    const auto socket = options.socket.empty() ? shm::default_socket_path() : options.socket;
    const auto request = request_of(options, socket);
    if (!request.is_ok()) return fail(request.error(), console);
    // Before anybody waits for steps.
    std::optional<ReplacedFile> file;
    if (!options.output.empty()) {
        auto made = ReplacedFile::make(options.output);
        if (!made.is_ok()) return fail(made.error(), console);
        file.emplace(std::move(*made));
    }
    const auto reply = shm::ask_for_trace(socket, *request);
    if (!reply.is_ok()) return fail(reply.error(), console);
    if (reply->events.empty() && !reply->status.is_ok()) return fail(reply->status, console);
    const auto steps = put_together(*reply);
    const auto text = chrome_trace(*reply, steps, *request);
    if (!file) {
        console.out << text;
    } else {
        if (const auto written = file->put(text); !written.is_ok()) return fail(written, console);
        const auto figures = figures_of(steps);
        if (options.is_json)
            console.out << json_of(*request, *reply, figures);
        else
            console.out << sentence_of(options, *request, *reply) << table_of(figures, console.look);
    }
    if (reply->events_lost > 0)
        console.error << "gradsieve: " << reply->events_lost
                      << " events found no room and are not in the trace: ask for fewer steps\n";
    return reply->status.is_ok() ? ExitCode::kOk : fail(reply->status, console);
}

}  // namespace gradsieve::cli

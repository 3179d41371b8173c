// gradsieve state save, load, release: asks the daemon over its socket, and says what came of it.
#include "cli/commands.hpp"
#include "cli/human.hpp"
#include "cli/known_jobs.hpp"
#include "cli/render_status.hpp"
#include "cli/text_table.hpp"
#include "shm/local_socket.hpp"
#include "shm/sealed_message.hpp"
#include "shm/state_caller.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstring>
#include <fstream>
#include <ostream>
#include <set>

namespace gradsieve::cli {

namespace {

using Parts = std::vector<shm::SnapshotPart>;

TimePoint deadline_of(const StateOptions& options) {
    return std::chrono::steady_clock::now() + std::chrono::seconds(options.timeout_s);
}

std::string job_text(const shm::StateRequest& request) {
    return "job '" + printable(request.job_name) + "' (run '" + printable(request.run_id) + "')";
}

/// Runs of that name which the daemon knows: those that go on, and, where none does, those that ended.
std::set<std::string> known_runs(const std::string& socket, const std::string& name) {
    std::set<std::string> running;
    std::set<std::string> ended;
    for (const auto& job : known_jobs(socket))
        if (job.name == name) (job.is_running ? running : ended).insert(job.run_id);
    return running.empty() ? ended : running;
}

Result<shm::StateRequest> request_of(const StateOptions& options, shm::StateRequestKind kind,
                                     const std::string& socket) {
    if (options.job.empty())
        return Status(StatusCode::kInvalidArgument, "no job is named: allowed is gradsieve state " + options.action +
                                                        " JOB; gradsieve status names jobs");
    shm::StateRequest request;
    request.kind = kind;
    request.number = 1;
    request.job_name = options.job;
    request.run_id = options.run;
    request.group = options.group;
    request.is_of_all_groups = !options.has_group;
    request.step = options.step;
    if (!options.run.empty()) return request;
    const auto runs = known_runs(socket, options.job);
    if (runs.size() == 1) {
        request.run_id = *runs.begin();
        return request;
    }
    std::string list;
    for (const auto& run : runs) list += (list.empty() ? "'" : ", '") + printable(run) + "'";
    return Status(StatusCode::kInvalidArgument,
                  "job '" + printable(options.job) + "': the daemon tells of " +
                      (runs.empty() ? "no run" : std::to_string(runs.size()) + " runs (" + list + ")") +
                      " of that name: needed is one; name it with --run, gradsieve state list shows them");
}

std::string table_of(const Parts& parts, const Look& look) {
    const std::vector<Column> columns = {{"GROUP", false, 6, 4}, {"STEP", true, 0, 9},   {"NODE", false, 12, 8},
                                         {"RANKS", false, 0, 5}, {"VALUES", true, 0, 6}, {"DIGEST", false, 0, 3}};
    std::vector<Row> rows;
    for (const auto& part : parts)
        rows.push_back({{part.group},
                        {fmt::format("{}", part.step)},
                        {part.node},
                        {ranges_text({part.ranks.begin(), part.ranks.end()})},
                        {memory_text(part.bytes)},
                        {fmt::format("{:016x}", part.digest)}});
    return rows.empty() ? "" : render_table(columns, rows, look);
}

std::string json_of(const shm::StateRequest& request, const Parts& parts) {
    using Json = nlohmann::ordered_json;
    auto list = Json::array();
    for (const auto& part : parts)
        list.push_back({{"name", request.job_name},
                        {"run_id", request.run_id},
                        {"group", part.group},
                        {"step", part.step},
                        {"node", part.node},
                        {"ranks", part.ranks},
                        {"bytes", part.bytes},
                        {"digest", fmt::format("{:016x}", part.digest)}});
    return list.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

Status write_file(const std::string& path, ByteView bytes) {
    const auto beside = path + ".new";
    UniqueFd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    const auto failed = [&] {
        const auto why = std::strerror(errno);
        ::unlink(beside.c_str());
        return Status(StatusCode::kUnavailable,
                      path + ": " + why + ": needed is a folder to write to, with room; name another");
    };
    if (!fd.is_open()) return failed();
    while (!bytes.empty()) {
        const auto count = ::write(fd.get(), bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return failed();
        bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    if (::fsync(fd.get()) != 0 || ::rename(beside.c_str(), path.c_str()) != 0) return failed();
    return {};
}

Result<Parts> save(const StateOptions& options, shm::StateRequest& inout_request, const std::string& socket) {
    GRADSIEVE_ASSIGN(inout_request, request_of(options, shm::StateRequestKind::kSave, socket));
    GRADSIEVE_ASSIGN(auto answered, shm::ask_for_state(socket, inout_request, deadline_of(options)));
    if (options.file.empty()) return std::move(answered.parts);
    std::set<std::string> groups;
    for (const auto& part : answered.parts) groups.insert(part.group);
    if (groups.size() != 1)
        return Status(StatusCode::kInvalidArgument,
                      "--file beside " + std::to_string(groups.size()) +
                          " groups, which are pinned: allowed is one group in a file; name it "
                          "with --group");
    auto read = inout_request;
    read.kind = shm::StateRequestKind::kRead;
    read.group = *groups.begin();
    read.is_of_all_groups = false;
    read.step = answered.parts.front().step;
    GRADSIEVE_ASSIGN(const auto brought, shm::ask_for_state(socket, read, deadline_of(options)));
    GRADSIEVE_ASSIGN(const auto bytes, shm::read_whole_file(brought.file.get(), "the snapshot"));
    GRADSIEVE_TRY(write_file(options.file, bytes));
    return std::move(answered.parts);
}

Result<Parts> load(const StateOptions& options, shm::StateRequest& inout_request, const std::string& socket) {
    if (options.file.empty() && !options.has_step)
        return Status(
            StatusCode::kInvalidArgument,
            "neither --step nor --file is given: allowed is the step that the next start goes on from (0: the newest "
            "after all), or a file to take in; gradsieve state list shows steps");
    Parts parts;
    if (!options.file.empty()) {
        GRADSIEVE_ASSIGN(inout_request, request_of(options, shm::StateRequestKind::kWrite, socket));
        inout_request.step = 0;
        const UniqueFd fd(::open(options.file.c_str(), O_RDONLY | O_CLOEXEC));
        if (!fd.is_open())
            return Status(StatusCode::kNotFound,
                          options.file + ": " + std::strerror(errno) +
                              ": needed is a file that gradsieve state save --file wrote; name one");
        GRADSIEVE_ASSIGN(const auto bytes, shm::read_whole_file(fd.get(), options.file));
        GRADSIEVE_ASSIGN(const auto memory, shm::seal_message(bytes));
        GRADSIEVE_ASSIGN(auto taken, shm::ask_for_state(socket, inout_request, deadline_of(options), memory.get()));
        parts = std::move(taken.parts);
    }
    if (!options.has_step) return parts;
    GRADSIEVE_ASSIGN(inout_request, request_of(options, shm::StateRequestKind::kChoose, socket));
    GRADSIEVE_ASSIGN(auto chosen, shm::ask_for_state(socket, inout_request, deadline_of(options)));
    return std::move(chosen.parts);
}

Result<Parts> release(const StateOptions& options, shm::StateRequest& inout_request, const std::string& socket) {
    if (!options.has_all_steps && (!options.has_step || options.step == 0))
        return Status(StatusCode::kInvalidArgument,
                      "no step is named: allowed is --step STEP, or --all-steps; gradsieve state list shows them");
    GRADSIEVE_ASSIGN(inout_request, request_of(options, shm::StateRequestKind::kRelease, socket));
    GRADSIEVE_ASSIGN(auto answered, shm::ask_for_state(socket, inout_request, deadline_of(options)));
    return std::move(answered.parts);
}

std::string sentence_of(const StateOptions& options, const shm::StateRequest& request) {
    if (options.action == "save")
        return "pinned on every node, for " + job_text(request) +
               (options.file.empty() ? "" : "; this node's part is in " + options.file) + ":\n";
    if (options.action == "release") return "released on this node, of " + job_text(request) + ":\n";
    if (!options.has_step) return "taken in and pinned on this node, for " + job_text(request) + ":\n";
    if (options.step == 0) return "the next start of " + job_text(request) + " goes on from the newest step\n";
    return "the next start of " + job_text(request) +
           " goes on from this step, on every node, or fails and says which lacks it:\n";
}

}  // namespace

ExitCode run_state_change(const StateOptions& options, Console& console) {
    const auto socket = options.socket.empty() ? shm::default_socket_path() : options.socket;
    shm::StateRequest request;
    const auto parts = options.action == "save"   ? save(options, request, socket)
                       : options.action == "load" ? load(options, request, socket)
                                                  : release(options, request, socket);
    if (!parts.is_ok()) {
        const bool is_late = parts.error().code() == StatusCode::kTimeout;
        console.error << "gradsieve: "
                      << (is_late ? "no answer within " + std::to_string(options.timeout_s) +
                                        " s: what was asked for goes on; ask again, or raise --timeout"
                                  : parts.error().text())
                      << '\n';
        return ExitCode::kFailed;
    }
    if (options.is_json)
        console.out << json_of(request, *parts);
    else
        console.out << sentence_of(options, request) << table_of(*parts, console.look);
    return ExitCode::kOk;
}

}  // namespace gradsieve::cli

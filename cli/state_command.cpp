// gradsieve state list: the snapshots that a job may go on from, read from the disk alone. What changes something is
// state_change.cpp's.
#include "cli/commands.hpp"
#include "cli/human.hpp"
#include "cli/render_status.hpp"
#include "cli/text_table.hpp"
#include "daemon/config.hpp"
#include "daemon/pinned_snapshots.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <ostream>

namespace gradsieve::cli {

namespace {

using Found = std::vector<daemon::FoundSnapshot>;

double age_s(const daemon::SnapshotHead& head) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::max(0.0, std::chrono::duration<double>(now).count() - static_cast<double>(head.saved_unix_s));
}

bool is_pinned(const daemon::FoundSnapshot& found) { return found.path.ends_with(daemon::kPinnedSuffix); }

/// Newest first within each group; of one step the pinned one first.
Found all_in(const std::string& folder) {
    auto found = daemon::find_pinned(folder);
    for (auto& one : daemon::find_snapshots(folder)) found.push_back(std::move(one));
    const auto order = [](const daemon::FoundSnapshot& one) {
        if (!one.head.is_ok()) return std::make_tuple(std::string(), std::string(), 0U, Step{0});
        return std::make_tuple(one.head->table.job_name, one.head->table.run_id, one.head->group, ~one.head->step);
    };
    std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
    return found;
}

std::vector<std::uint64_t> numbers(const std::vector<Rank>& ranks) { return {ranks.begin(), ranks.end()}; }

std::string json_of(const Found& found) {
    using Json = nlohmann::ordered_json;
    auto list = Json::array();
    for (const auto& one : found) {
        if (!one.head.is_ok()) {
            list.push_back({{"path", one.path}, {"error", one.head.error().text()}});
            continue;
        }
        const auto& head = *one.head;
        list.push_back({{"path", one.path},
                        {"name", head.table.job_name},
                        {"run_id", head.table.run_id},
                        {"group", head.table.groups.front()},
                        {"step", head.step},
                        {"ranks", head.ranks},
                        {"world_size", head.table.world_size},
                        {"bytes", daemon::snapshot_bytes(head)},
                        {"pinned", is_pinned(one)},
                        {"digest", fmt::format("{:016x}", head.digest)},
                        {"age_s", static_cast<std::uint64_t>(age_s(head))},
                        {"saved_unix_s", head.saved_unix_s}});
    }
    return list.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string table_of(const Found& found, const Look& look) {
    const std::vector<Column> columns = {{"JOB", false, 16, 9}, {"RUN", false, 12, 8},  {"GROUP", false, 6, 4},
                                         {"STEP", true, 0, 9},  {"RANKS", false, 0, 5}, {"VALUES", true, 0, 6},
                                         {"SAVED", true, 0, 7}, {"PINNED", false, 0, 6}};
    std::vector<Row> rows;
    for (const auto& one : found) {
        if (!one.head.is_ok()) continue;
        const auto& head = *one.head;
        rows.push_back({{head.table.job_name},
                        {head.table.run_id},
                        {head.table.groups.front()},
                        {fmt::format("{}", head.step)},
                        {fmt::format("{} of {}", ranges_text(numbers(head.ranks)), head.table.world_size)},
                        {memory_text(daemon::snapshot_bytes(head))},
                        {time_text(age_s(head)) + " ago"},
                        {is_pinned(one) ? "yes" : ""}});
    }
    return rows.empty() ? "" : render_table(columns, rows, look);
}

}  // namespace

ExitCode run_state_list(const StateOptions& options, Console& console) {
    const auto config =
        daemon::load_config({.file = {}, .node = {}, .socket_path = {}, .state_directory = options.state_directory});
    auto folder = options.state_directory;
    if (folder.empty()) {
        if (!config.is_ok()) {
            console.error << "gradsieve: " << config.error().text() << '\n';
            return ExitCode::kFailed;
        }
        folder = config->state_directory;
    }
    const auto found = all_in(folder);
    if (options.is_json) {
        console.out << json_of(found);
    } else if (found.empty()) {
        console.out << "no snapshots in " << folder
                    << ": set snapshot_steps in [state] to have some made, or ask for one: gradsieve state save JOB\n";
    } else {
        console.out << table_of(found, console.look);
    }
    auto code = ExitCode::kOk;
    for (const auto& one : found) {
        if (one.head.is_ok()) continue;
        console.error << "gradsieve: " << one.head.error().text() << '\n';
        code = ExitCode::kFailed;
    }
    return code;
}

}  // namespace gradsieve::cli

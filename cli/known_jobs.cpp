#include "cli/known_jobs.hpp"

#include "cli/human.hpp"
#include "cli/status_page_health.hpp"

#include <nlohmann/json.hpp>

namespace gradsieve::cli {

std::vector<KnownJob> known_jobs(const std::string& socket) {
    std::vector<KnownJob> jobs;
    const auto document = nlohmann::json::parse(read_page(socket).document, nullptr, /*allow_exceptions=*/false);
    if (!document.is_object()) return jobs;
    const auto text = [](const nlohmann::json& entry, const char* key) {
        const auto found = entry.find(key);
        return found != entry.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    const auto take = [&](const char* key, bool is_running) {
        const auto list = document.find(key);
        if (list == document.end() || !list->is_array()) return;
        for (const auto& entry : *list)
            if (entry.is_object()) jobs.push_back({text(entry, "name"), text(entry, "run_id"), is_running});
    };
    take("jobs", true);
    take("ended_jobs", false);
    return jobs;
}

Result<KnownJob> choose_running_job(const std::vector<KnownJob>& jobs, const std::string& name,
                                    const std::string& run) {
    std::vector<KnownJob> found;
    std::string list;
    for (const auto& job : jobs) {
        if (!job.is_running || (!name.empty() && job.name != name) || (!run.empty() && job.run_id != run)) continue;
        found.push_back(job);
        list += (list.empty() ? "" : ", ") + ("'" + printable(job.name) + "' (run '" + printable(job.run_id) + "')");
    }
    if (found.size() == 1) return found.front();
    const auto meant = name.empty() ? std::string("no job is named") : "job '" + printable(name) + "'";
    return Status(StatusCode::kInvalidArgument,
                  meant + (run.empty() ? "" : ", run '" + printable(run) + "'") + ": the daemon runs " +
                      (found.empty() ? "none such" : std::to_string(found.size()) + ": " + list) +
                      ": needed is one; name it with --job and --run, gradsieve status shows them");
}

}  // namespace gradsieve::cli

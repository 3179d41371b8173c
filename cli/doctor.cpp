#include "cli/doctor.hpp"

#include "cli/commands.hpp"
#include "cli/human.hpp"
#include "daemon/config_key_file.hpp"
#include "shm/local_socket.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <ostream>
#include <sstream>
#include <utility>

namespace gradsieve::cli {

namespace {

constexpr std::size_t kSubjectWidth = 14;
constexpr std::size_t kTextColumn = 4 + 2 + kSubjectWidth + 1;
constexpr auto kPeerPatience = std::chrono::milliseconds(1000);

std::string file_text(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

Finding configuration_finding(const Result<daemon::Config>& config) {
    if (!config.is_ok())
        return {Grade::kFail, "configuration", config.error().text(),
                "correct it; 'gradsieve check-config' shows the same"};
    const auto file = config->file.empty() ? std::string("no file: built-in values") : config->file;
    if (config->nodes.empty()) return {Grade::kOk, "configuration", file + ", single node", ""};
    return {Grade::kOk, "configuration",
            fmt::format("{}, this is node '{}' of {}", file, config->nodes[config->self].name, config->nodes.size()),
            ""};
}

void append(std::vector<Finding>& findings, std::vector<Finding> more) {
    std::move(more.begin(), more.end(), std::back_inserter(findings));
}

std::vector<Finding> findings_of(const DoctorOptions& options) {
    const auto config = daemon::load_config(
        {.file = options.file, .node = options.node, .socket_path = options.socket, .state_directory = {}});
    // Clients look where the client library looks, whatever the file says: what they would find is what counts.
    const auto socket = options.socket.empty() && config.is_ok() && config->origins.at("socket.path") == "file"
                            ? config->socket_path
                            : options.socket;
    const auto reading = read_page(socket);
    const bool is_there = reading.code == ExitCode::kOk || reading.code == ExitCode::kHung;
    const auto pid = is_there ? reading.health.pid : 0;

    std::vector<Finding> findings = {configuration_finding(config), check_health(reading),
                                     check_socket(socket.empty() ? shm::default_socket_path() : socket),
                                     check_versions(reading)};
    append(findings, check_document(reading));
    if (config.is_ok() && !config->nodes.empty()) {
        if (daemon::is_encrypted(*config)) findings.push_back(check_key(*config, reading));
        findings.push_back(check_port(config->nodes[config->self], pid));
        append(findings, check_peers(config->nodes, config->self, kPeerPatience));
    }
    findings.push_back(check_sealed_memory());
    findings.push_back(
        check_locked_memory(file_text(fmt::format("/proc/{}/limits", pid > 0 ? fmt::format("{}", pid) : "self"))));
    findings.push_back(check_memory(file_text("/proc/meminfo"), config.is_ok() ? config->memory_limit_bytes : 0));
    findings.push_back(check_cpu());
    return findings;
}

}  // namespace

std::string render_findings(const std::vector<Finding>& findings, const Look& look) {
    constexpr std::array<std::string_view, 3> kNames = {"ok  ", "warn", "FAIL"};
    constexpr std::array kInks = {Ink::kGood, Ink::kWarn, Ink::kBad};
    std::array<std::size_t, 3> totals{};
    const std::string margin(kTextColumn, ' ');
    std::string text;
    for (const auto& finding : findings) {
        const auto grade = static_cast<std::size_t>(finding.grade);
        ++totals[grade];
        auto start =
            fmt::format("{}  {:<{}} ", look.paint(kInks[grade], kNames[grade]), finding.subject, kSubjectWidth);
        for (const auto& line : wrap_words(printable(finding.text), look.width - kTextColumn, look.ellipsis()))
            text += std::exchange(start, margin) + line + '\n';
        if (finding.advice.empty()) continue;
        start = margin + (look.has_unicode ? "→ " : "> ");
        for (const auto& line : wrap_words(finding.advice, look.width - kTextColumn - 2, look.ellipsis()))
            text += std::exchange(start, margin + "  ") + line + '\n';
    }
    return text + fmt::format("{} ok, {} to look at, {} failed\n", totals[0], totals[1], totals[2]);
}

ExitCode run_doctor(const DoctorOptions& options, Console& console) {
    const auto findings = findings_of(options);
    console.out << render_findings(findings, console.look);
    const bool has_failed = std::any_of(findings.begin(), findings.end(),
                                        [](const Finding& finding) { return finding.grade == Grade::kFail; });
    return has_failed ? ExitCode::kFailed : ExitCode::kOk;
}

}  // namespace gradsieve::cli

#include "tests/survive/fault_row.hpp"

#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include <fmt/format.h>

namespace gradsieve::survive {

namespace {

constexpr std::chrono::seconds kBetweenLines{10};
constexpr std::size_t kWidth = 110;

double middle(std::vector<double> values) {
    std::ranges::sort(values);
    return values.empty() ? 0 : values[values.size() / 2];
}
std::string quoted(const std::string& text) {
    std::string result = "\"";
    for (const char letter : text) result += letter == '"' ? "\"\"" : std::string(1, letter == '\n' ? ' ' : letter);
    return result + "\"";
}
template <typename Number>
std::string number(const std::optional<Number>& value) {
    return value ? fmt::format("{}", *value) : "";
}
std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const auto& line : lines) text += (text.empty() ? "" : "; ") + line;
    return text;
}
std::string today() {
    const std::time_t now = std::time(nullptr);
    char text[32];
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    return {text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &parts)};
}

}  // namespace

void FaultRow::judge_detection() {
    if (!promised_ms || detection_ms.empty()) return;
    const auto late = std::ranges::count_if(detection_ms, [&](double ms) { return ms > *promised_ms; });
    if (late > 0)
        breaches.push_back(fmt::format("{} of {} after more than {:g} ms, the longest {:.0f} ms", late,
                                       detection_ms.size(), *promised_ms, std::ranges::max(detection_ms)));
}

void write_rows(const std::string& folder, const std::string& group, const std::vector<FaultRow>& rows, double minutes,
                const Amount& amount) {
    const auto path = folder + "/" + group + ".csv";
    std::ofstream file(path + ".draft");
    double load = 0;
    ::getloadavg(&load, 1);
    file << "group,fault,injected,promised,detections,detection_median_ms,detection_longest_ms,promised_ms,steps,steps_"
            "lost,"
            "mass_lost,waits_overdue,residue,breaches,note,minutes,ended,load,seed,commit\n";
    for (const auto& row : rows) {
        file << fmt::format("{},{},{},{},{},", group, quoted(row.fault), row.injected, quoted(row.promised),
                            row.detection_ms.size());
        if (row.detection_ms.empty())
            file << ",,";
        else
            file << fmt::format("{:.1f},{:.1f},", middle(row.detection_ms), std::ranges::max(row.detection_ms));
        file << fmt::format("{},{},{},{},{},{},{},{},{:.1f},{},{:.1f},{},{}\n", number(row.promised_ms),
                            number(row.steps), number(row.steps_lost),
                            row.mass_lost ? fmt::format("{:.2e}", *row.mass_lost) : "", number(row.waits_overdue),
                            number(row.residue), quoted(joined(row.breaches)), quoted(row.note), minutes, today(), load,
                            amount.seed, amount.commit);
    }
    file.close();
    if (!file) throw std::runtime_error("cannot write " + path + ".draft");
    std::filesystem::rename(path + ".draft", path);
}

void print_row(const FaultRow& row) {
    std::string seen;
    if (!row.detection_ms.empty())
        seen += fmt::format("seen after {:.0f} ms, {:.0f} at most; ", middle(row.detection_ms),
                            std::ranges::max(row.detection_ms));
    if (row.steps_lost) seen += fmt::format("{} of {} steps lost; ", *row.steps_lost, row.steps.value_or(0));
    if (row.mass_lost) seen += fmt::format("mass lost {:.1e}; ", *row.mass_lost);
    if (row.waits_overdue) seen += fmt::format("{} calls overdue; ", *row.waits_overdue);
    if (row.residue) seen += fmt::format("{} things left; ", *row.residue);
    std::printf("%-8s %s, %llu times: %s%s\n", row.breaches.empty() ? "kept" : "BROKEN", row.fault.c_str(),
                static_cast<unsigned long long>(row.injected), seen.c_str(), row.note.c_str());
    for (const auto& breach : row.breaches) std::printf("         %s\n", breach.c_str());
    std::fflush(stdout);
}

Progress::Progress() : is_terminal_(::isatty(STDERR_FILENO) != 0) {}
Progress::~Progress() {
    if (has_line_) std::fprintf(stderr, "\r%*s\r", static_cast<int>(kWidth), "");
}
void Progress::say(const std::string& text) {
    if (is_terminal_) {
        std::fprintf(stderr, "\r%-*.*s", static_cast<int>(kWidth), static_cast<int>(kWidth), text.c_str());
        has_line_ = true;
    } else if (std::chrono::steady_clock::now() >= next_) {
        std::fprintf(stderr, "%s\n", text.c_str());
        next_ = std::chrono::steady_clock::now() + kBetweenLines;
    }
    std::fflush(stderr);
}

}  // namespace gradsieve::survive

// A line of the table of what survives, the options that say how often, and the line of progress. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gradsieve::survive {

/// How much of everything; the defaults are the whole form.
struct Amount {
    std::uint64_t kills = 1'000;
    std::uint64_t freezes = 100;
    std::uint64_t rounds = 10'000;
    std::uint64_t seed = 20'261'129;
    std::string commit = "unknown";  ///< of what runs; for the table alone
};

/// What was done, what was promised, and what was seen. Numbers without a value were not looked at.
struct FaultRow {
    std::string fault;
    std::uint64_t injected = 0;
    std::string promised;
    std::vector<double> detection_ms;            ///< one for each fault that was alone and whose effect was awaited
    std::optional<double> promised_ms;           ///< longest of these that keeps the promise
    std::optional<std::uint64_t> steps;          ///< training steps that were taken meanwhile
    std::optional<std::uint64_t> steps_lost;     ///< without an average on any rank, or with other bits
    std::optional<double> mass_lost;             ///< of the mass of all gradients; see RunLedger::lost_mass
    std::optional<std::uint64_t> waits_overdue;  ///< calls of ranks that came back after their deadline
    std::optional<std::uint64_t> residue;        ///< things left behind
    std::vector<std::string> breaches;           ///< what broke a promise, in words; empty: kept
    std::string note;

    /// Adds a breach for each detection that was too late.
    void judge_detection();
};

/// Rows of one group as CSV with a header line, whole or not at all. Errors: std::runtime_error.
void write_rows(const std::string& folder, const std::string& group, const std::vector<FaultRow>& rows, double minutes,
                const Amount& amount);
/// One row, on the terminal.
void print_row(const FaultRow& row);

/// A line that is written over on a terminal, and written anew every ten seconds elsewhere.
class Progress {
public:
    Progress();
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    void say(const std::string& text);

private:
    bool is_terminal_;
    bool has_line_ = false;
    std::chrono::steady_clock::time_point next_{};
};

}  // namespace gradsieve::survive

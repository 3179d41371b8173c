// The subcommands: what each is told, and what runs it. Each writes to the console only and answers with its exit code.
// One thread.
#pragma once

#include "cli/console.hpp"
#include "cli/exit_code.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace gradsieve::cli {

struct StatusOptions {
    std::string socket;     ///< "" = the usual places
    bool is_watch = false;  ///< redraw each second until interrupted
    bool is_json = false;
    bool has_all = false;  ///< every tensor's row
};
/// Reads the status page only, so it answers while the daemon is busy, stopped or dead.
[[nodiscard]] ExitCode run_status(const StatusOptions& options, Console& console);

struct PeersOptions {
    std::string socket;
    bool is_json = false;
};
[[nodiscard]] ExitCode run_peers(const PeersOptions& options, Console& console);

struct MetricsOptions {
    std::string socket;
    std::string output;  ///< file that is replaced as a whole; "" = standard output
};
/// OpenMetrics text out of the status page; kOk whatever the daemon's health is, kFailed if the file cannot be written.
[[nodiscard]] ExitCode run_metrics(const MetricsOptions& options, Console& console);

struct TraceOptions {
    std::string socket;
    std::string job;     ///< "" = the only one that runs
    std::string run;     ///< "" = the only one of that name
    std::string output;  ///< file that is replaced as a whole; "" = standard output
    unsigned steps = 20;
    unsigned timeout_s = 60;
    bool is_json = false;  ///< the summary that goes with a file
};
/// Asks the daemon for a job's next steps and writes them as a Chrome trace; waits for them. kFailed if not all came,
/// with those that did written all the same.
[[nodiscard]] ExitCode run_trace(const TraceOptions& options, Console& console);

struct CodecsOptions {
    bool is_json = false;
};
[[nodiscard]] ExitCode run_codecs(const CodecsOptions& options, Console& console);

struct ExplainOptions {
    std::string codec;
    std::uint64_t elements = 25'600'000;  ///< about ResNet-50's
    std::string gradients;                ///< file of recorded ones (gradient_file.hpp); "" = noise
    bool is_json = false;
};
/// What a codec sends, keeps and costs; encodes on one thread for a moment.
[[nodiscard]] ExitCode run_explain(const ExplainOptions& options, Console& console);

struct PlanOptions {
    std::uint64_t elements = 0;
    std::uint32_t nodes = 0;
    std::string link;  ///< "1Gbit"
    double step_ms = 0;
    double backward_share = 2.0 / 3;
    double latency_us = 50;
    unsigned threads = 0;             ///< codec workers; 0 = as the daemon would take of this machine
    double codec_speed = 0;           ///< elements a second that are encoded, and sent ones decoded; 0 = measured here
    std::string socket_speed;         ///< "40Gbit": what a core sends and takes in at once; "" = measured here
    std::string gradients;            ///< file of recorded ones; "" = noise
    std::vector<std::string> codecs;  ///< empty = a choice from mild to strong
    bool is_json = false;
};
/// Whether compressing pays, by arithmetic; needs no daemon.
[[nodiscard]] ExitCode run_plan(const PlanOptions& options, Console& console);

struct CheckConfigOptions {
    std::string file;  ///< "" = the daemon's usual one
    std::string node;
    std::string socket;
    std::string state_directory;
};
[[nodiscard]] ExitCode run_check_config(const CheckConfigOptions& options, Console& console);

struct StateOptions {
    std::string action;           ///< "list", "save", "load", "release"
    std::string state_directory;  ///< list
    std::string socket;           ///< the others
    std::string job;
    std::string run;    ///< "" = the only one of that name
    std::string group;  ///< counts if has_group; else all groups
    bool has_group = false;
    std::uint64_t step = 0;
    bool has_step = false;
    bool has_all_steps = false;  ///< release
    std::string file;            ///< save: where this node's part goes; load: where it comes from
    unsigned timeout_s = 60;
    bool is_json = false;
};
/// Reads the snapshots' heads; fails if one of them is damaged, and names it.
[[nodiscard]] ExitCode run_state_list(const StateOptions& options, Console& console);
/// Asks the daemon: a snapshot on every node, the step that the next start of a job goes on from, the end of some.
[[nodiscard]] ExitCode run_state_change(const StateOptions& options, Console& console);

struct KeygenOptions {
    std::string out;           ///< a folder or a file; "" = where this user's daemon looks
    bool may_replace = false;  ///< what is there
    bool is_shown = false;     ///< nothing is made: print the public half of what is there
};
/// Makes a node's key pair: the secret into a file of mode 0600, the public half to standard output.
[[nodiscard]] ExitCode run_keygen(const KeygenOptions& options, Console& console);

struct DoctorOptions {
    std::string file;
    std::string node;
    std::string socket;
};
/// Looks for what keeps a daemon or a training process from working here; waits at most a second per peer, all at once.
[[nodiscard]] ExitCode run_doctor(const DoctorOptions& options, Console& console);

/// Parses the command line and runs what it names.
[[nodiscard]] ExitCode run_command_line(const std::vector<std::string>& arguments, Console& console);

}  // namespace gradsieve::cli

// The command line as the subcommands' options. Only this file includes CLI11, and its exceptions end here.
#include "cli/commands.hpp"
#ifdef GRADSIEVE_HAVE_DEMO
#include "cli/demo.hpp"
#endif

#include "shm/trace_message.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <ostream>

namespace gradsieve::cli {

namespace {

constexpr const char* kFooter = R"(
Examples:
  gradsieve status --watch          what runs now, redrawn each second
  gradsieve status --json | jq .    the same for programs
  gradsieve metrics                 the same for Prometheus
  gradsieve trace -o FILE           where the time of a step goes
  gradsieve codecs explain CODEC    what a codec sends, keeps and costs
  gradsieve plan --params 100M --nodes 4 --link 1Gbit --step-ms 300
                                    does compressing pay, and with which codec?
  gradsieve check-config FILE       is the file right, and what are the values?
  gradsieve keygen                  make this node's key pair
  gradsieve state list              what is on disk to go on from
  gradsieve state save JOB          keep what all nodes have of it now
  gradsieve doctor                  what keeps it from working here?

Exit status: 0 live or done, 1 wrong usage or a failed check, 3 the daemon hangs, 4 it is dead, 5 it was stopped,
6 none has run here, 7 its status page cannot be read.
Manual: man gradsieve, man gradsieved, man gradsieved.toml)";

class CommandLine {
public:
    explicit CommandLine(Console& console) : console_(console) {
        app_.set_version_flag("--version", std::string("gradsieve " GRADSIEVE_VERSION));
        app_.require_subcommand(1);
        app_.footer(kFooter);
        app_.get_formatter()->column_width(30);
        add_status();
        add_peers();
        add_metrics();
        add_trace();
        add_codecs();
        add_plan();
        add_check_config();
        add_keygen();
        add_state();
        add_doctor();
#ifdef GRADSIEVE_HAVE_DEMO
        add_demo();
#endif
    }

    ExitCode run(const std::vector<std::string>& arguments) {
        try {
            auto reversed = arguments;  // CLI11 takes them from the back
            std::reverse(reversed.begin(), reversed.end());
            app_.parse(std::move(reversed));
        } catch (const CLI::ParseError& error) {
            const bool is_fault = app_.exit(error, console_.out, console_.error) != 0;
            return is_fault ? ExitCode::kFailed : ExitCode::kOk;
        }
        return command_();
    }

private:
    CLI::App* add(const std::string& name, const std::string& meaning, std::function<ExitCode()> command) {
        auto* sub = app_.add_subcommand(name, meaning);
        sub->footer("");  // the examples and exit codes are said once
        sub->callback([this, command = std::move(command)] { command_ = command; });
        return sub;
    }
    static void add_socket(CLI::App* sub, std::string& socket) {
        sub->add_option("--socket", socket, "The daemon's socket; the status page lies beside it")->type_name("PATH");
    }
    static void add_file_and_node(CLI::App* sub, std::string& file, std::string& node) {
        sub->add_option("file", file, "Configuration file; the daemon's usual one if left out")->type_name("FILE");
        sub->add_option("--node", node, "Be this node of the file")->type_name("NAME");
    }

    static CLI::Option* add_elements(CLI::App* sub, const std::string& name, std::uint64_t& elements,
                                     const std::string& meaning) {
        const std::map<std::string, std::uint64_t> units = {{"k", 1'000}, {"M", 1'000'000}, {"G", 1'000'000'000}};
        return sub->add_option(name, elements, meaning)
            ->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::CASE_SENSITIVE))
            ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 48U));
    }

    static void add_gradients(CLI::App* sub, std::string& path) {
        sub->add_option("-g,--gradients", path, "Recorded gradients, 4-byte floats, step by step, instead of noise")
            ->type_name("FILE");
    }

    void add_status() {
        auto* sub = add("status", "Show the daemon, its peers, jobs and tensors",
                        [this] { return run_status(status_, console_); });
        add_socket(sub, status_.socket);
        auto* watch = sub->add_flag("-w,--watch", status_.is_watch, "Redraw each second until interrupted");
        sub->add_flag("--json", status_.is_json, "Print the status document and the daemon's health as JSON")
            ->excludes(watch);
        sub->add_flag("-a,--all", status_.has_all, "Show every tensor, not only the largest");
    }
    void add_peers() {
        auto* sub = add("peers", "Show the other nodes' daemons", [this] { return run_peers(peers_, console_); });
        add_socket(sub, peers_.socket);
        sub->add_flag("--json", peers_.is_json, "Print them as JSON");
    }
    void add_metrics() {
        auto* sub = add("metrics", "Print the status as OpenMetrics text, for Prometheus",
                        [this] { return run_metrics(metrics_, console_); });
        add_socket(sub, metrics_.socket);
        sub->add_option("-o,--output", metrics_.output, "Replace this file instead, e.g. of node_exporter's collector")
            ->type_name("FILE");
    }
    void add_trace() {
        auto* sub = add("trace", "Record where the time of a job's next steps goes, for chrome://tracing and Perfetto",
                        [this] { return run_trace(trace_, console_); });
        sub->add_option("-j,--job", trace_.job, "Name of the job; may be left out where one runs")->type_name("JOB");
        sub->add_option("--run", trace_.run, "Its run id; may be left out where there is one alone")->type_name("ID");
        sub->add_option("-n,--steps", trace_.steps, "Steps to record, of all groups together")
            ->check(CLI::Range(1U, shm::kTraceStepLimit))
            ->capture_default_str();
        auto* output =
            sub->add_option("-o,--output", trace_.output, "Put the trace there and print a summary")->type_name("FILE");
        sub->add_option("--timeout", trace_.timeout_s, "Seconds to wait for the steps")
            ->check(CLI::Range(1U, shm::kTraceTimeoutLimitMs / 1000))
            ->capture_default_str();
        add_socket(sub, trace_.socket);
        sub->add_flag("--json", trace_.is_json, "Print the summary as JSON")->needs(output);
    }
    void add_codecs() {
        auto* sub = add("codecs", "List the stages that codecs are made of, or explain a codec", [this] {
            return is_explained_ ? run_explain(explain_, console_) : run_codecs(codecs_, console_);
        });
        sub->add_flag("--json", codecs_.is_json, "Print them as JSON");
        auto* explain = sub->add_subcommand("explain", "Say what a codec sends, keeps and costs");
        explain->footer("");
        explain->add_option("codec", explain_.codec, "As in a configuration, e.g. \"topk(0.01) | pow2(bits=4) | auto\"")
            ->required();
        add_elements(explain, "-n,--elements", explain_.elements, "Elements of the model; k, M and G are understood")
            ->capture_default_str();
        add_gradients(explain, explain_.gradients);
        explain->add_flag("--json", explain_.is_json, "Print it as JSON");
        explain->callback([this] { is_explained_ = true; });
    }
    void add_plan() {
        auto* sub = add("plan", "Say whether compressing pays on a cluster, and with which codec",
                        [this] { return run_plan(plan_, console_); });
        add_elements(sub, "-p,--params", plan_.elements, "Parameters of the model; k, M and G are understood")
            ->required();
        sub->add_option("-n,--nodes", plan_.nodes, "Machines that exchange gradients")
            ->required()
            ->check(CLI::Range(1U, 1024U));
        sub->add_option("-l,--link", plan_.link, "Speed of a machine's link each way, such as 1Gbit")->required();
        sub->add_option("-s,--step-ms", plan_.step_ms, "Milliseconds of computing a step, without any exchange")
            ->required()
            ->check(CLI::Range(0.001, 1e9));
        sub->add_option("--backward-share", plan_.backward_share, "Share of it in which gradients come out, at its end")
            ->check(CLI::Range(0.0, 1.0))
            ->capture_default_str();
        sub->add_option("--latency-us", plan_.latency_us, "One way, in microseconds")
            ->check(CLI::Range(0.0, 1e7))
            ->capture_default_str();
        sub->add_option("--threads", plan_.threads, "The daemon's codec workers; 0 = as it would take of this machine")
            ->check(CLI::Range(0U, 1024U));
        sub->add_option("--codec-speed", plan_.codec_speed,
                        "Elements a second that are encoded, instead of what is measured here, such as 1.5e11")
            ->check(CLI::Range(1.0, 1e15));
        sub->add_option("--socket-speed", plan_.socket_speed,
                        "What a core sends and takes in at once, instead of what is measured here, such as 40Gbit");
        sub->add_option("-c,--codec", plan_.codecs, "Only this codec; may be repeated");
        add_gradients(sub, plan_.gradients);
        sub->add_flag("--json", plan_.is_json, "Print it as JSON");
    }
    void add_check_config() {
        auto* sub = add("check-config", "Check a configuration and print the effective values with their origin",
                        [this] { return run_check_config(check_config_, console_); });
        add_file_and_node(sub, check_config_.file, check_config_.node);
        sub->add_option("--socket", check_config_.socket, "As the daemon's option")->type_name("PATH");
        sub->add_option("--state", check_config_.state_directory, "As the daemon's option")->type_name("FOLDER");
    }
    void add_state() {
        auto* sub = add("state", "List, save, load and release snapshots of residuals and variances", [this] {
            return state_.action == "list" ? run_state_list(state_, console_) : run_state_change(state_, console_);
        });
        sub->add_option("action", state_.action, "What to do")
            ->required()
            ->check(CLI::IsMember({"list", "save", "load", "release"}));
        sub->add_option("job", state_.job, "Name of the job to save, load or release")->type_name("JOB");
        sub->add_option("--run", state_.run, "Its run id; may be left out where there is one alone")->type_name("ID");
        auto* group = sub->add_option("--group", state_.group, "One group of its tensors; all if left out");
        auto* step = sub->add_option("--step", state_.step, "Save: of this step; load: go on from it; release: of it");
        sub->add_flag("--all-steps", state_.has_all_steps, "Release: of every step")->excludes(step);
        sub->add_option("--file", state_.file, "Save: put this node's part there; load: take it from there")
            ->type_name("FILE");
        sub->add_option("--timeout", state_.timeout_s, "Seconds to wait for all nodes")
            ->check(CLI::Range(1, 86'400))
            ->capture_default_str();
        sub->add_option("--socket", state_.socket, "The daemon's socket")->type_name("PATH");
        sub->add_option("--state", state_.state_directory, "List: their folder, as the daemon's option")
            ->type_name("FOLDER");
        sub->add_flag("--json", state_.is_json, "Print them as JSON");
        sub->parse_complete_callback([this, group, step] {
            state_.has_group = group->count() > 0;
            state_.has_step = step->count() > 0;
        });
    }
    void add_keygen() {
        auto* sub = add("keygen", "Make the key pair of a node, and print its public half",
                        [this] { return run_keygen(keygen_, console_); });
        sub->add_option("--out", keygen_.out, "Folder or file for the secret key")->type_name("PATH");
        auto* force = sub->add_flag("--force", keygen_.may_replace, "Replace a key that is there");
        sub->add_flag("--show", keygen_.is_shown, "Make nothing: print the public half of the key that is there")
            ->excludes(force);
    }
    void add_doctor() {
        auto* sub =
            add("doctor", "Look for what keeps it from working here", [this] { return run_doctor(doctor_, console_); });
        add_file_and_node(sub, doctor_.file, doctor_.node);
        add_socket(sub, doctor_.socket);
    }
#ifdef GRADSIEVE_HAVE_DEMO
    void add_demo() {
        auto* sub = add("demo", "Train a small network on two nodes of this machine, compressed and not",
                        [this] { return run_demo(demo_arguments_, console_); });
        sub->set_help_flag();  // its own options are its own
        sub->allow_extras();
        sub->prefix_command();
        sub->callback([this, sub] {
            demo_arguments_ = sub->remaining();
            command_ = [this] { return run_demo(demo_arguments_, console_); };
        });
    }
    std::vector<std::string> demo_arguments_;
#endif

    CLI::App app_{"Averages gradients between machines for a fraction of the bytes: the tool for people.", "gradsieve"};
    Console& console_;
    std::function<ExitCode()> command_;
    StatusOptions status_;
    PeersOptions peers_;
    MetricsOptions metrics_;
    TraceOptions trace_;
    CodecsOptions codecs_;
    ExplainOptions explain_;
    bool is_explained_ = false;
    PlanOptions plan_;
    CheckConfigOptions check_config_;
    KeygenOptions keygen_;
    StateOptions state_;
    DoctorOptions doctor_;
};

}  // namespace

ExitCode run_command_line(const std::vector<std::string>& arguments, Console& console) {
    return CommandLine(console).run(arguments);
}

}  // namespace gradsieve::cli

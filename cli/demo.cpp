#include "cli/demo.hpp"

#include "cli/demo_run.hpp"
#include "cli/text_table.hpp"
#include "daemon/codec_choice.hpp"

#include <fmt/core.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <utility>
#include <vector>

namespace gradsieve::cli {

namespace {

/// What comes closest to the uncompressed run here, where each node has four gradients a step; measured, as the default
/// beside it, in docs/decisions/0005-default-codec.md.
constexpr const char* kDemoCodec = "variance(alpha=3) | pow2(bits=4) | auto";

constexpr int kNameCells = 12;

std::string human_bytes(double bytes) {
    return bytes >= 1e9   ? fmt::format("{:.2f} GB", bytes / 1e9)
           : bytes >= 1e6 ? fmt::format("{:.2f} MB", bytes / 1e6)
                          : fmt::format("{:.1f} kB", bytes / 1e3);
}

/// A folder of our own, removed unless the user wants to look into it.
class TemporaryFolder {
public:
    explicit TemporaryFolder(bool is_keeping) : is_keeping_(is_keeping) {
        std::string pattern = (std::filesystem::temp_directory_path() / "gradsieve-demo-XXXXXX").string();
        if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        if (!path_.empty() && !is_keeping_) std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    void keep() noexcept { is_keeping_ = true; }

private:
    std::string path_;
    bool is_keeping_;
};

struct NamedOutcome {
    std::string name;
    std::string codec;
    DemoOutcome outcome;
};

void print_table(const std::vector<NamedOutcome>& runs, Console& console) {
    const std::vector<Column> columns{
        {"", false, 8, 9},        {"test accuracy", true, 0, 9}, {"sent per node", true, 0, 9},
        {"per step", true, 0, 5}, {"wire ratio", true, 0, 9},    {"ms/step", true, 0, 7},
        {"identical", true, 0, 9}};
    std::vector<Row> rows;
    std::string codecs;
    for (const auto& [name, codec, outcome] : runs) {
        const auto steps = static_cast<double>(std::max<std::uint64_t>(1, outcome.steps));
        rows.push_back({{name, Ink::kBold},
                        {fmt::format("{:.2f} %", 100 * outcome.accuracy)},
                        {human_bytes(static_cast<double>(outcome.bytes_sent))},
                        {human_bytes(static_cast<double>(outcome.bytes_sent) / steps)},
                        {fmt::format("{:.1f}", outcome.wire_ratio)},
                        {fmt::format("{:.1f}", outcome.step_ms)},
                        {outcome.is_identical ? "yes" : "NO", outcome.is_identical ? Ink::kGood : Ink::kBad}});
        codecs += fmt::format("  {:<{}}  {}\n", name, kNameCells, codec);
    }
    console.out << "\n" << render_table(columns, rows, console.look) << "\n" << codecs << "\n";
}

/// Names, which become parts of jobs' names, and codecs.
std::vector<std::pair<std::string, std::string>> wanted_runs(const DemoOptions& options) {
    const std::pair plain("uncompressed", std::string(daemon::kPlainCodec));
    if (!options.codec.empty()) return {plain, {"compressed", options.codec}};
    return {plain, {"default", std::string(daemon::kDefaultCodec)}, {"variance", kDemoCodec}};
}

bool parse(const std::vector<std::string>& arguments, DemoOptions& options, Console& console, ExitCode& ret_code) {
    CLI::App app{
        "Trains a small network on Fashion-MNIST on two nodes of two ranks each: uncompressed, by the daemon's\n"
        "default codec and by one that asks the gradients' variance. Says what each cost and whether all ranks agree.",
        "gradsieve demo"};
    app.add_option("--codec", options.codec, "Codec of one compressed run in place of the two");
    app.add_option("--data", options.data, "Folder with the data set")->capture_default_str();
    app.add_option("--epochs", options.epochs, "Passes over the training images")
        ->capture_default_str()
        ->check(CLI::Range(1, 100));
    app.add_option("--samples", options.samples, "Training images used")
        ->capture_default_str()
        ->check(CLI::Range(512, 60000));
    app.add_option("--rate", options.rate_mbit, "Mbit/s of the link between the nodes (as root)")
        ->capture_default_str()
        ->check(CLI::Range(1, 100000));
    app.add_option("--learning-rate", options.learning_rate, "Peak learning rate")->capture_default_str();
    app.add_option("--seed", options.seed, "Seed of weights and order")->capture_default_str();
    app.add_flag("--gpu", options.is_on_card, "Gradients on the GPU, handed over by CUDA IPC and compressed there");
    app.add_flag("--keep", options.is_keeping, "Leave logs and configuration in the temporary folder");
    app.add_flag("--loopback", options.is_plain_loopback, "No network namespaces, even as root");
    try {
        auto reversed = std::vector<std::string>(arguments.rbegin(), arguments.rend());
        app.parse(reversed);
        return true;
    } catch (const CLI::ParseError& error) {
        ret_code = app.exit(error, console.out, console.error) == 0 ? ExitCode::kOk : ExitCode::kFailed;
        return false;
    }
}

}  // namespace

ExitCode run_demo(const std::vector<std::string>& arguments, Console& console) {
    DemoOptions options;
    auto code = ExitCode::kOk;
    if (!parse(arguments, options, console, code)) return code;
    const auto programs = find_demo_programs();
    if (programs.daemon.empty() || programs.trainer.empty()) {
        console.error << "gradsieve demo: " << (programs.daemon.empty() ? "gradsieved" : "gradsieve-demo-trainer")
                      << " was not found beside this program: install the package again, or run ./dev build\n";
        return ExitCode::kFailed;
    }
    if (!std::filesystem::exists(options.data)) {
        console.error << "gradsieve demo: " << options.data
                      << " does not exist: apt-get install dataset-fashion-mnist, or name its folder with --data\n";
        return ExitCode::kFailed;
    }
    TemporaryFolder folder(options.is_keeping);
    const DemoLink link(options.rate_mbit, options.is_plain_loopback);
    console.out << fmt::format(
                       "\n  gradsieve demo: two nodes, two ranks each, two micro-batches a step, Fashion-MNIST, "
                       "784-256-128-10\n  link: {}\n",
                       link.description())
                << (options.is_keeping ? fmt::format("  logs: {}\n", folder.path()) : "") << "\n";
    console.out.flush();
    DemoRun run(options, programs, link, folder.path(), console);
    const auto wanted = wanted_runs(options);
    std::vector<NamedOutcome> runs;
    for (const auto& [name, codec] : wanted)
        if (const auto outcome = run.train(name, codec, name == wanted.back().first)) {
            runs.push_back({name, codec, *outcome});
        } else {
            folder.keep();
            return ExitCode::kFailed;
        }
    print_table(runs, console);
    const bool is_identical = std::ranges::all_of(runs, [](const auto& one) { return one.outcome.is_identical; });
    const auto& plain = runs.front().outcome;
    const auto& small = runs.back().outcome;
    console.out << fmt::format("demo: accuracy {:.4f} (uncompressed {:.4f}), wire ratio {:.1f}, identical {}\n",
                               small.accuracy, plain.accuracy, small.wire_ratio, is_identical ? "yes" : "no");
    return is_identical ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace gradsieve::cli

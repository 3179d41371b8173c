// gradsieve-gpu-check: runs the sections in order and ends 0 only if every equality held.
#include "codec/cuda/device.hpp"
#include "encode_large.hpp"
#include "gpu_check.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <random>

namespace {

using namespace gradsieve;
using namespace gradsieve::gpu_check;

enum class When : std::uint8_t {
    kAlways,
    kNotSmall,  ///< timings, which mean nothing of small sizes
    kIfNamed,   ///< takes minutes, and starts an MPS daemon
};
struct Section {
    const char* name;
    When when;
    void (*run)(const Options&, Report&);
    bool has_small_form = false;  ///< of a timing: it runs with --small too, if it is named
};
constexpr std::array kSections{
    Section{"encode", When::kAlways, check_encode_equality},
    Section{"decode", When::kAlways, check_decode_equality},
    Section{"decode-hostile", When::kAlways, check_decode_hostile},
    Section{"low-rank", When::kAlways, check_low_rank},
    Section{"delta", When::kAlways, check_delta},
    Section{"sketch", When::kAlways, check_sketch},
    Section{"scope", When::kAlways, check_scope},
    Section{"similarity", When::kAlways, check_similarity},
    Section{"gpus-encode", When::kAlways, check_encode_on_gpus},
    Section{"gpus-decode", When::kAlways, check_decode_on_gpus},
    Section{"encode-large", When::kNotSmall, check_large},
    Section{"encode-speed", When::kNotSmall, measure_encode},
    Section{"decode-speed", When::kNotSmall, measure_decode},
    Section{"low-rank-speed", When::kNotSmall, measure_low_rank},
    Section{"sketch-speed", When::kNotSmall, measure_sketch},
    Section{"scope-speed", When::kNotSmall, measure_scope},
    Section{"similarity-speed", When::kNotSmall, measure_similarity},
    Section{"end-to-end", When::kAlways, check_end_to_end},
    Section{"gpus-end-to-end", When::kAlways, check_gpus_end_to_end},
    Section{"samples-end-to-end", When::kAlways, check_samples_end_to_end},
    Section{"state-end-to-end", When::kAlways, check_state_end_to_end},
    Section{"end-to-end-speed", When::kNotSmall, measure_end_to_end, true},
    Section{"busy-trainer", When::kIfNamed, measure_busy_trainer},
};

bool print_devices(int chosen) {
    fmt::print("gradsieve {}, CUDA {}\n", GRADSIEVE_VERSION, codec::cuda::versions_text());
    const auto devices = codec::cuda::list_devices();
    if (!devices.is_ok()) {
        fmt::print("{}\n", devices.status().to_string());
        return false;
    }
    for (const auto& device : *devices)
        fmt::print("{} device {}: {}, {} MiB, {} multiprocessors, compute {}.{}\n",
                   device.ordinal == chosen ? '*' : ' ', device.ordinal, device.name, device.total_bytes >> 20U,
                   device.multiprocessors, device.compute_major, device.compute_minor);
    if (static_cast<std::size_t>(chosen) < devices->size()) return true;
    fmt::print("device {}: allowed are 0 to {}\n", chosen, devices->size() - 1);
    return false;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    options.seed = std::random_device{}();
    CLI::App app{"Checks the GPU's codecs against the CPU's, bit for bit, and times them."};
    app.add_option("--device", options.device, "ordinal of the GPU")->check(CLI::NonNegativeNumber);
    app.add_flag(
        "--small", options.is_small,
        "small sizes, and no timing but a named end-to-end-speed, for compute-sanitizer and the emulated card");
    app.add_option("--repetitions", options.repetitions, "of each measurement of encode-speed; 1 under a profiler")
        ->check(CLI::Range(1, 1000));
    app.add_option("--seed", options.seed, "seed of the inputs (default: fresh, printed)");
    app.add_flag(
        "--few", options.is_few,
        "encode: one pipeline at few sizes, the next at others, one number of gradients for each kind of data; decode: "
        "of 1 and 3 nodes; end-to-end, samples-end-to-end: one number of gradients for a codec; one pipeline in twelve "
        "where several GPUs share the work; 30 steps of end-to-end-speed; one turn of busy-trainer");
    std::string part;
    app.add_option("--part", part, "of encode's pipelines, e.g. 2/8 the second eighth, so that several run at once")
        ->check([&options](const std::string& text) {
            char end = 0;
            if (std::sscanf(text.c_str(), "%u/%u%c", &options.part, &options.parts, &end) == 2 && options.part > 0 &&
                options.part <= options.parts)
                return std::string();
            return "part " + text + ": allowed are 1/N to N/N";
        });
    std::vector<std::string> names;
    for (const auto& section : kSections) names.emplace_back(section.name);
    app.add_option("--only", options.only, "sections; busy-trainer runs only if named")
        ->check(CLI::IsMember(names))
        ->delimiter(',');
    bool is_list = false;
    app.add_flag("--list", is_list, "print the devices, and end");
    CLI11_PARSE(app, argc, argv);
    options.has_timing = !options.is_small;
    std::signal(SIGPIPE, SIG_IGN);  // what is said to a rank that has ended
    if (!print_devices(options.device)) return 2;
    if (is_list) return 0;
    fmt::print("seed {}\n", options.seed);
    Report report;
    for (const auto& section : kSections) {
        const bool is_named = std::ranges::count(options.only, section.name) > 0;
        const bool may_time = options.has_timing || (section.has_small_form && is_named);
        if (section.when == When::kNotSmall && !may_time) continue;
        if (!is_named && (!options.only.empty() || section.when == When::kIfNamed)) continue;
        report.begin_section(section.name);
        section.run(options, report);
    }
    fmt::print("\n{}\n", report.summary());
    return report.has_failed() ? 1 : 0;
}

// gradsieve-gpu-check: runs the sections in order and ends 0 only if every equality held.
#include "codec/cuda/device.hpp"
#include "gpu_check.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <random>

namespace {

using namespace gradsieve;
using namespace gradsieve::gpu_check;

struct Section {
    const char* name;
    bool is_timing;
    void (*run)(const Options&, Report&);
};
constexpr std::array kSections{
    Section{"encode", false, check_encode_equality},
    Section{"decode", false, check_decode_equality},
    Section{"decode-hostile", false, check_decode_hostile},
    Section{"gpus-encode", false, check_encode_on_gpus},
    Section{"gpus-decode", false, check_decode_on_gpus},
    Section{"encode-speed", true, measure_encode},
    Section{"decode-speed", true, measure_decode},
    Section{"end-to-end", false, check_end_to_end},
    Section{"gpus-end-to-end", false, check_gpus_end_to_end},
    Section{"state-end-to-end", false, check_state_end_to_end},
    Section{"end-to-end-speed", true, measure_end_to_end},
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
    app.add_flag("--small", options.is_small, "small sizes and no timing, for compute-sanitizer and the emulated card");
    app.add_option("--repetitions", options.repetitions, "of each measurement of encode-speed; 1 under a profiler")
        ->check(CLI::Range(1, 1000));
    app.add_option("--seed", options.seed, "seed of the inputs (default: fresh, printed)");
    app.add_flag("--few", options.is_few, "one pipeline in four where several GPUs share the work, for sanitizers");
    std::string names;
    for (const auto& section : kSections) names += std::string(" ") + section.name;
    app.add_option("--only", options.only, "sections:" + names);
    CLI11_PARSE(app, argc, argv);
    options.has_timing = !options.is_small;
    std::signal(SIGPIPE, SIG_IGN);  // what is said to a rank that has ended
    if (!print_devices(options.device)) return 2;
    fmt::print("seed {}\n", options.seed);
    Report report;
    for (const auto& section : kSections) {
        if (section.is_timing && !options.has_timing) continue;
        if (!options.only.empty() && std::ranges::count(options.only, section.name) == 0) continue;
        report.begin_section(section.name);
        section.run(options, report);
    }
    fmt::print("\n{}\n", report.summary());
    return report.has_failed() ? 1 : 0;
}

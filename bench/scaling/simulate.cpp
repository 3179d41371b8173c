// gradsieve-simulate: what a step costs with many nodes, by the daemon's own job machines under a simulated clock.
// Prints one line of CSV for each number of nodes, and what `gradsieve plan`'s arithmetic says of it.
#include "bench/scaling/simulation.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

using gradsieve::ElementCount;
using gradsieve::scaling::Simulation;
using gradsieve::scaling::SimulationOptions;

constexpr double kMostElements = 1e10;

/// As many tensors of equal size as are asked for; the last one takes what is left over.
std::vector<ElementCount> equal_tensors(ElementCount elements, std::size_t count) {
    std::vector<ElementCount> tensors(count, elements / count);
    tensors.back() += elements % count;
    return tensors;
}

/// Payloads of a gathered step are held by every node of this process: at most about 2 GB of them.
std::uint32_t scale_for(const SimulationOptions& options, double elements) {
    const double nodes = static_cast<double>(options.nodes);
    const double bytes = options.codec.bytes_per_element * elements * nodes * (options.is_sharded ? 2 : nodes);
    return static_cast<std::uint32_t>(std::clamp(std::exp2(std::ceil(std::log2(bytes / 2e9))), 1.0, 65536.0));
}

gradsieve::exchange::StepCost foreseen(const SimulationOptions& options, double elements) {
    auto codec = options.codec, down = options.down;
    double cores = static_cast<double>(options.cores);
    if (options.are_cores_shared) cores /= static_cast<double>(options.nodes);
    for (auto* each : {&codec, &down}) {
        each->encode_seconds_per_element /= cores;
        each->decode_seconds_per_element /= cores;
    }
    const gradsieve::exchange::StepFacts step{static_cast<ElementCount>(elements),
                                              static_cast<std::uint32_t>(options.nodes),
                                              std::max(1e-9, options.step_seconds), options.backward_share};
    const gradsieve::exchange::LinkFacts link{options.link.bits_per_second,
                                              std::chrono::duration<double>(options.link.latency).count()};
    return options.is_sharded ? gradsieve::exchange::sharded_cost(step, link, codec, down)
                              : gradsieve::exchange::gather_cost(step, link, codec);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"What a step costs with many nodes: the daemon's own job machines under a simulated clock.",
                 "gradsieve-simulate"};
    SimulationOptions options;
    std::vector<std::size_t> nodes{2, 4, 8, 16};
    double elements = 25.6e6, rate = 1e9, latency_us = 50, step_ms = 0, straggler_ms = 0;
    std::size_t tensors = 16;
    double speed = 1e9, down_speed = 1e9, decode_speed = 1e9, down_decode_speed = 1e9;
    options.codec.bytes_per_element = 0.0455;
    options.down.bytes_per_element = 0.0455;
    app.add_option("--nodes", nodes, "numbers of nodes, one rank on each")
        ->check(CLI::Range(2, 1024))
        ->capture_default_str();
    app.add_flag("--sharded", options.is_sharded, "by the sharded plan; without it by gather");
    app.add_option("--elements", elements, "parameters")->check(CLI::Range(1.0, kMostElements))->capture_default_str();
    app.add_option("--tensors", tensors, "of equal size")->check(CLI::Range(1, 100'000))->capture_default_str();
    app.add_option("--bytes", options.codec.bytes_per_element, "of a payload, for each element")
        ->check(CLI::Range(1e-9, 16.0))
        ->capture_default_str();
    app.add_option("--down-bytes", options.down.bytes_per_element, "the same of averages, by the sharded plan")
        ->check(CLI::Range(1e-9, 16.0))
        ->capture_default_str();
    app.add_option("--encode-speed", speed, "elements a second and core")
        ->check(CLI::Range(1.0, 1e15))
        ->capture_default_str();
    app.add_option("--decode-speed", decode_speed, "the same of one payload")
        ->check(CLI::Range(1.0, 1e15))
        ->capture_default_str();
    app.add_option("--down-encode-speed", down_speed, "of averages")
        ->check(CLI::Range(1.0, 1e15))
        ->capture_default_str();
    app.add_option("--down-decode-speed", down_decode_speed, "of averages")
        ->check(CLI::Range(1.0, 1e15))
        ->capture_default_str();
    app.add_option("--rate", rate, "bits a second, each way, of every node")
        ->check(CLI::Range(1e3, 1e15))
        ->capture_default_str();
    app.add_option("--latency-us", latency_us, "one way")->check(CLI::Range(0.0, 1e9))->capture_default_str();
    app.add_option("--step-ms", step_ms, "computing")->check(CLI::Range(0.0, 1e7))->capture_default_str();
    app.add_option("--backward", options.backward_share, "share of it in which gradients come out")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    app.add_option("--straggler-ms", straggler_ms, "one node of each step computes that much longer")
        ->check(CLI::Range(0.0, 1e7))
        ->capture_default_str();
    app.add_option("--breaks", options.breaks, "share of frames at which the connection of two nodes breaks")
        ->check(CLI::Range(0.0, 0.5))
        ->capture_default_str();
    app.add_option("--cores", options.cores, "that code, of each node")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    app.add_flag("--shared-cores", options.are_cores_shared, "the cores are of all nodes together");
    app.add_option("--steps", options.steps, "the first one does not count")
        ->check(CLI::Range(2, 100'000))
        ->capture_default_str();
    app.add_option("--seed", options.seed, "of stragglers and losses")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    options.codec.encode_seconds_per_element = 1 / speed;
    options.codec.decode_seconds_per_element = 1 / decode_speed;
    options.down.encode_seconds_per_element = 1 / down_speed;
    options.down.decode_seconds_per_element = 1 / down_decode_speed;
    options.link = {rate, gradsieve::Duration(static_cast<std::int64_t>(latency_us * 1000))};
    options.step_seconds = step_ms / 1000;
    options.straggler_seconds = straggler_ms / 1000;
    if (elements < static_cast<double>(tensors)) {
        std::fprintf(stderr,
                     "gradsieve-simulate: --tensors %zu of --elements %.0f: allowed are as many tensors as elements; "
                     "name fewer\n",
                     tensors, elements);
        return 2;
    }
    options.tensors = equal_tensors(static_cast<ElementCount>(elements), tensors);
    std::puts(
        "nodes,plan,payload_bytes,sent_mean,sent_most,messages,step_ms,longest_ms,kept_bytes,broken_links,planned_sent,"
        "planned_ms");
    for (const auto count : nodes) {
        options.nodes = count;
        options.scale = scale_for(options, elements);
        try {
            const auto found = Simulation(options).run();
            const auto plan = foreseen(options, elements);
            std::printf("%zu,%s,%.0f,%.0f,%.0f,%.1f,%.4f,%.4f,%.0f,%llu,%.0f,%.4f\n", count,
                        options.is_sharded ? "sharded" : "gather", found.payload_bytes, found.sent_bytes_mean,
                        found.sent_bytes_most, found.frames, 1000 * found.step_median_s, 1000 * found.step_longest_s,
                        found.retained_bytes, static_cast<unsigned long long>(found.broken_links), plan.sent_bytes,
                        1000 * plan.step_seconds);
            std::fflush(stdout);
        } catch (const std::exception& failed) {
            std::fprintf(stderr, "gradsieve-simulate: %s\n", failed.what());
            return 1;
        }
    }
    return 0;
}

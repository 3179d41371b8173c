// gradsieve plan: asks no daemon. Codecs' sizes come from noise or recorded gradients that are encoded on the spot, and
// so do their speeds, unless the user names one. What exchanging costs the host is measured too.
#include "cli/codec_explanation.hpp"
#include "cli/commands.hpp"
#include "cli/host_cost.hpp"
#include "cli/plan_report.hpp"

#include "codec/shard.hpp"
#include "daemon/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <ostream>
#include <thread>

namespace gradsieve::cli {

namespace {

/// From the mildest to the strongest.
constexpr const char* kCodecs[] = {"all | bf16",
                                   "all | dither(levels=7)",
                                   "all | sign",
                                   "variance(alpha=3) | pow2(bits=4)",
                                   "topk(0.01) | pow2(bits=4)",
                                   "topk(0.001) | pow2(bits=4)"};

/// A frame of Ethernet with 1,500 bytes in it takes 1,538 on the wire, preamble and gap included, and carries 1,448 of
/// a TCP stream.
constexpr double kWirePerByte = 1538.0 / 1448;

/// What every row is made from.
struct PlanInputs {
    const PlanOptions& options;
    double workers = 1;
    std::optional<RecordedGradients> recorded;
};

Result<exchange::CodecFacts> facts_of(const codec::Pipeline& pipeline, const PlanInputs& inputs) {
    const auto& [options, workers, recorded] = inputs;
    GRADSIEVE_ASSIGN(const auto explanation,
                     explain_codec(pipeline, options.elements, recorded ? &*recorded : nullptr));
    const auto& trial = explanation.trial;
    const auto elements = static_cast<double>(trial.elements);
    const bool is_given = options.codec_speed > 0;
    return exchange::CodecFacts{
        trial.payload_bytes / elements,
        is_given ? 1 / options.codec_speed : trial.encode_milliseconds / 1000 / elements / workers,
        is_given ? trial.sent_fraction / options.codec_speed : trial.decode_milliseconds / 1000 / elements / workers};
}

/// A step by the sharded plan has to be a fiftieth shorter, for it is one of two phases.
constexpr double kShardedPaysFrom = 1.02;

/// Of codecs of averages, by their text: a trial takes a second.
using TriedCodecs = std::map<std::string, std::optional<exchange::CodecFacts>>;

/// By gather, or by the sharded plan where that pays.
Result<PlanRow> codec_row(const std::string& codec, const PlanInputs& inputs, const PlanReport& report,
                          TriedCodecs& inout_tried) {
    GRADSIEVE_ASSIGN(const auto pipeline, pipeline_alone(codec));
    GRADSIEVE_ASSIGN(const auto facts, facts_of(pipeline, inputs));
    PlanRow row{codec, true, exchange::gather_cost(report.step, report.link, facts)};
    GRADSIEVE_ASSIGN(const auto of_averages, codec::parse_pipeline(daemon::Config{}.down_codec));
    const auto down = codec::down_pipeline(pipeline, of_averages);
    if (!down || report.step.nodes < 3) return row;  // of two nodes each sends as much by either
    auto& of_down = inout_tried[codec::canonical_text(*down, codec::Knobs::kKeep)];
    if (!of_down && *down == pipeline) of_down = facts;
    if (!of_down) {
        GRADSIEVE_ASSIGN(of_down, facts_of(*down, inputs));
    }
    const auto sharded = exchange::sharded_cost(report.step, report.link, facts, *of_down);
    if (kShardedPaysFrom * sharded.step_seconds <= row.cost.step_seconds) {
        row.cost = sharded;
        row.is_sharded = true;
    }
    return row;
}

Status read_speed(const char* option, const std::string& text, double& ret_speed) {
    ret_speed = link_speed(text);
    if (ret_speed > 0) return {};
    return {StatusCode::kInvalidArgument,
            fmt::format("{} '{}': allowed is a speed above 0 with k, M or G, such as 1Gbit or 100Mbit/s; write the "
                        "slower direction's",
                        option, text)};
}

/// What exchanging costs a host, as the user says or as measured here; in words, into `ret_words`.
Result<HostCost> host_cost(const PlanOptions& options, std::string& ret_words) {
    if (!options.socket_speed.empty()) {
        double bits_per_second = 0;
        GRADSIEVE_TRY(read_speed("--socket-speed", options.socket_speed, bits_per_second));
        ret_words = fmt::format("{:g} Gbit/s through a core's sockets", bits_per_second / 1e9);
        return HostCost{8 / bits_per_second, 0};
    }
    const auto measured = measure_host_cost();
    if (!measured.is_ok()) {
        ret_words = fmt::format("sockets that cost nothing (not measured: {})", measured.status().text());
        return HostCost{};
    }
    ret_words = fmt::format("sockets as fast as here, {:.0f} Gbit/s a core", 8e-9 / measured->socket_seconds_per_byte);
    return measured;
}

Result<PlanReport> make_report(const PlanOptions& options) {
    PlanReport report;
    report.step = {options.elements, options.nodes, options.step_ms / 1000, options.backward_share};
    report.link.latency_seconds = options.latency_us / 1e6;
    report.link.wire_per_byte = kWirePerByte;
    GRADSIEVE_TRY(read_speed("--link", options.link, report.link.bits_per_second));
    GRADSIEVE_ASSIGN(const auto host, host_cost(options, report.host));
    report.link.host_seconds_per_byte = host.socket_seconds_per_byte;
    // What the daemon would take of this machine.
    PlanInputs inputs{options,
                      static_cast<double>(options.threads > 0 ? options.threads
                                                              : std::max(1U, std::thread::hardware_concurrency() / 4)),
                      {}};
    if (!options.gradients.empty()) {
        GRADSIEVE_ASSIGN(inputs.recorded, read_gradients(options.gradients, options.elements, kTrialElements));
        report.is_of_gradients = true;
    }
    report.coding = options.codec_speed > 0 ? fmt::format("codecs at {:g} G elements/s", options.codec_speed / 1e9)
                                            : fmt::format("codecs as fast as {} of this machine's cores",
                                                          static_cast<unsigned>(inputs.workers));
    for (const auto& [name, bytes] : {std::pair{"all-reduce, fp32", 4.0}, {"all-reduce, fp16", 2.0}})
        report.rows.push_back(
            {name, false, exchange::ring_cost(report.step, report.link, bytes, host.sum_seconds_per_byte)});
    std::vector<std::string> codecs = options.codecs;
    if (codecs.empty()) codecs.assign(std::begin(kCodecs), std::end(kCodecs));
    TriedCodecs tried;
    for (const auto& codec : codecs) {
        GRADSIEVE_ASSIGN(auto row, codec_row(codec, inputs, report, tried));
        report.rows.push_back(std::move(row));
    }
    return report;
}

}  // namespace

ExitCode run_plan(const PlanOptions& options, Console& console) {
    const auto report = make_report(options);
    if (!report.is_ok()) {
        console.error << "gradsieve: " << report.error().text() << '\n';
        return ExitCode::kFailed;
    }
    console.out << (options.is_json ? plan_json(*report) : render_plan(*report, console.look));
    return ExitCode::kOk;
}

}  // namespace gradsieve::cli

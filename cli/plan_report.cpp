#include "cli/plan_report.hpp"

#include "cli/human.hpp"
#include "cli/text_table.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>

namespace gradsieve::cli {

namespace {

constexpr double kPaysFrom = 1.1;
constexpr double kHardlyPaysFrom = 1.02;
constexpr double kAsGoodAs = 1.05;

std::string duration(double seconds) {
    return seconds < 10 ? fmt::format("{} ms", figure_text(1000 * seconds)) : time_text(seconds);
}
std::string speed(double bits_per_second) {
    return bits_per_second >= 1e9 ? fmt::format("{:g} Gbit/s", bits_per_second / 1e9)
                                  : fmt::format("{:g} Mbit/s", bits_per_second / 1e6);
}

std::string plan_of(const PlanRow& row) { return !row.is_codec ? "" : row.is_sharded ? "sharded" : "gather"; }

std::string answer(const PlanReport& report, const PlanChoice& choice) {
    const auto& plain = report.rows[choice.plain];
    const auto& codec = report.rows[choice.codec];
    const double gain = plain.cost.step_seconds / codec.cost.step_seconds;
    const auto with_plain =
        fmt::format("with {} a step takes {}, {:.0f} % more than computing alone", plain.name,
                    duration(plain.cost.step_seconds), 100 * plain.cost.exposed_seconds / report.step.step_seconds);
    const auto with_codec = fmt::format("with {}{} {}", codec.name, codec.is_sharded ? " by the sharded plan" : "",
                                        duration(codec.cost.step_seconds));
    switch (choice.verdict) {
        case PlanVerdict::kPays:
            return fmt::format("It pays: {}; {}, {:.1f} times faster.", with_plain, with_codec, gain);
        case PlanVerdict::kHardlyPays:
            return fmt::format("It hardly pays: {}; {}. Measure before you change anything.", with_plain, with_codec);
        case PlanVerdict::kStepAside: break;
    }
    return fmt::format("It does not pay: {}; {}. Keep the all-reduce.", with_plain, with_codec);
}

}  // namespace

PlanChoice choose_plan(const PlanReport& report) {
    PlanChoice choice;
    const auto faster = [&](std::size_t row, std::size_t than) {
        return report.rows[row].cost.step_seconds < report.rows[than].cost.step_seconds;
    };
    std::size_t fastest = report.rows.size();
    for (std::size_t row = 0; row < report.rows.size(); ++row) {
        if (!report.rows[row].is_codec) {
            if (faster(row, choice.plain)) choice.plain = row;
        } else if (fastest == report.rows.size() || faster(row, fastest)) {
            fastest = row;
        }
    }
    choice.codec = fastest;
    for (std::size_t row = report.rows.size(); row-- > 0;)
        if (report.rows[row].is_codec &&
            report.rows[row].cost.step_seconds <= kAsGoodAs * report.rows[fastest].cost.step_seconds)
            choice.codec = row;
    const double gain = report.rows[choice.plain].cost.step_seconds / report.rows[choice.codec].cost.step_seconds;
    choice.verdict = gain >= kPaysFrom         ? PlanVerdict::kPays
                     : gain >= kHardlyPaysFrom ? PlanVerdict::kHardlyPays
                                               : PlanVerdict::kStepAside;
    return choice;
}

std::string render_plan(const PlanReport& report, const Look& look) {
    const auto choice = choose_plan(report);
    const auto& step = report.step;
    std::string text =
        fmt::format("{} parameters on {} nodes at {}, {} of computing a step, gradients during its last {}\n\n",
                    count_text(step.elements), step.nodes, speed(report.link.bits_per_second),
                    duration(step.step_seconds), duration(step.step_seconds * step.backward_share));
    const std::vector<Column> columns = {{"exchange", false, 24, 9}, {"plan", false, 0, 7}, {"sent a node", true, 0, 8},
                                         {"link busy", true, 0, 5},  {"takes", true, 0, 6}, {"not hidden", true, 0, 7},
                                         {"step", true, 0, 9}};
    std::vector<Row> rows;
    for (std::size_t at = 0; at < report.rows.size(); ++at) {
        const auto& [name, is_codec, cost, is_sharded] = report.rows[at];
        const bool is_chosen = at == (choice.verdict == PlanVerdict::kPays ? choice.codec : choice.plain);
        const Ink ink = is_chosen ? Ink::kGood : Ink::kPlain;
        rows.push_back({{name, ink},
                        {plan_of(report.rows[at]), ink},
                        {bytes_text(static_cast<std::uint64_t>(cost.sent_bytes)), ink},
                        {fmt::format("{:.0f} %", 100 * cost.link_seconds / cost.step_seconds), ink},
                        {duration(cost.exchange_seconds), ink},
                        {duration(cost.exposed_seconds), ink},
                        {duration(cost.step_seconds), ink}});
    }
    text += render_table(columns, rows, look) + '\n';
    for (const auto& line : wrap_words(answer(report, choice), look.width, look.ellipsis()))
        text += look.paint(Ink::kBold, line) + '\n';
    const auto note = fmt::format(
        "Arithmetic, not a measurement: a link without losses, {} one way; {:.0f} % for headers; {}; {}; codecs' sizes "
        "on {}.",
        duration(report.link.latency_seconds), 100 * (report.link.wire_per_byte - 1), report.coding, report.host,
        report.is_of_gradients ? "the recorded gradients" : "Gaussian noise");
    for (const auto& line : wrap_words(note, look.width, look.ellipsis())) text += look.paint(Ink::kDim, line) + '\n';
    return text;
}

std::string plan_json(const PlanReport& report) {
    const auto choice = choose_plan(report);
    nlohmann::ordered_json root;
    root["elements"] = report.step.elements;
    root["nodes"] = report.step.nodes;
    root["link_bits_per_s"] = report.link.bits_per_second;
    root["latency_s"] = report.link.latency_seconds;
    root["wire_per_byte"] = report.link.wire_per_byte;
    root["host_s_per_byte"] = report.link.host_seconds_per_byte;
    root["compute_s"] = report.step.step_seconds;
    root["backward_share"] = report.step.backward_share;
    auto rows = nlohmann::ordered_json::array();
    for (const auto& [name, is_codec, cost, is_sharded] : report.rows)
        rows.push_back({{"name", name},
                        {"codec", is_codec},
                        {"plan", is_codec ? nlohmann::ordered_json(is_sharded ? "sharded" : "gather")
                                          : nlohmann::ordered_json(nullptr)},
                        {"sent_bytes", cost.sent_bytes},
                        {"link_s", cost.link_seconds},
                        {"exchange_s", cost.exchange_seconds},
                        {"exposed_s", cost.exposed_seconds},
                        {"step_s", cost.step_seconds}});
    root["rows"] = rows;
    constexpr const char* kVerdicts[] = {"pays", "hardly pays", "does not pay"};
    root["verdict"] = kVerdicts[static_cast<std::size_t>(choice.verdict)];
    root["all_reduce"] = report.rows[choice.plain].name;
    root["codec"] = report.rows[choice.codec].name;
    return root.dump(2) + '\n';
}

double link_speed(const std::string& text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || !(value > 0) || !std::isfinite(value)) return 0;
    std::string unit(end, text.data() + text.size());
    while (!unit.empty() && unit.front() == ' ') unit.erase(0, 1);
    for (const char* suffix : {"/s", "ps", "bit", "b"})
        if (unit.ends_with(suffix)) unit.resize(unit.size() - std::string_view(suffix).size());
    if (unit == "k") return value * 1e3;
    if (unit == "M") return value * 1e6;
    if (unit == "G") return value * 1e9;
    return 0;
}

}  // namespace gradsieve::cli

// One job on the status screen: whom it waits for, its ratios and times, its tensors.
#include "cli/human.hpp"
#include "cli/render_status.hpp"
#include "cli/text_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

namespace gradsieve::cli {

namespace {

/// The codecs in use, the job's own first: tables then name them by a letter.
std::vector<std::string> codecs_of(const JobView& job) {
    std::vector<std::string> codecs = {job.codec};
    for (const auto& tensor : job.tensors)
        if (!tensor.codec.empty() && std::find(codecs.begin(), codecs.end(), tensor.codec) == codecs.end())
            codecs.push_back(tensor.codec);
    return codecs;
}

std::string letter_of(const std::vector<std::string>& codecs, const std::string& codec) {
    const auto index = static_cast<std::size_t>(std::find(codecs.begin(), codecs.end(), codec) - codecs.begin());
    if (index == codecs.size()) return "-";
    return index < 26 ? std::string(1, static_cast<char>('A' + index)) : fmt::format("{}", index + 1);
}

std::string render_codecs(const JobView& job, const std::vector<std::string>& codecs, const Look& look) {
    const auto origin = job.codec_origin.empty() ? std::string() : fmt::format("from the {}", job.codec_origin);
    if (codecs.size() == 1) return render_line("codec", {{job.codec}, {origin, Ink::kDim}}, look);
    std::string text;
    for (const auto& codec : codecs)
        text += render_line("codec " + letter_of(codecs, codec),
                            {{codec}, {&codec == &codecs.front() ? origin : "", Ink::kDim}}, look);
    return text;
}

std::string render_title(const JobView& job, const Look& look) {
    std::set<std::string> nodes;
    for (const auto& rank : job.ranks) nodes.insert(rank.node);
    auto ranks = fmt::format("{} rank{}", job.world_size, job.world_size == 1 ? "" : "s");
    if (!nodes.empty()) ranks += fmt::format(" on {} node{}", nodes.size(), nodes.size() == 1 ? "" : "s");
    return render_headline(
        {"job " + cut_middle(job.name, look.width / 3, look.ellipsis()), Ink::kTitle},
        {{job.phase, job.phase == "running" ? Ink::kGood : Ink::kWarn},
         {ranks},
         {job.run_id.empty() ? "" : "run " + cut_middle(job.run_id, look.width / 4, look.ellipsis())},
         {job.epoch.empty() ? "" : "epoch " + job.epoch, Ink::kDim}},
        look);
}

std::string render_waiting(const JobView& job, const Look& look) {
    std::string text;
    if (!job.missing_ranks.empty())
        text += render_line("missing",
                            {{fmt::format("rank{} {} of {}", job.missing_ranks.size() == 1 ? "" : "s",
                                          ranges_text(job.missing_ranks), job.world_size),
                              Ink::kWarn},
                             {"not attached yet", Ink::kWarn}},
                            look);
    for (const auto& wait : job.waiting) {
        std::vector<Part> parts = {{fmt::format("step {} for {}", wait.step, time_text(wait.for_s)), Ink::kWarn}};
        if (!wait.ranks.empty())
            parts.push_back(
                {fmt::format("rank{} {}", wait.ranks.size() == 1 ? "" : "s", ranges_text(wait.ranks)), Ink::kWarn});
        if (!wait.peers.empty())
            parts.push_back(
                {fmt::format("peer{} {}", wait.peers.size() == 1 ? "" : "s", fmt::join(wait.peers, ", ")), Ink::kWarn});
        if (!wait.tensor.empty()) parts.push_back({"tensor " + wait.tensor, Ink::kWarn});
        if (!wait.group.empty()) parts.push_back({"group " + wait.group, Ink::kWarn});
        text += render_line("waits for", parts, look);
    }
    return text;
}

std::string render_ratios(const JobView& job, const Look& look) {
    if (!job.wire_ratio)
        return render_line("wire ratio",
                           {{"none: nothing has travelled"},
                            {job.payload_ratio ? "payload ratio " + figure_text(*job.payload_ratio) : ""}},
                           look);
    return render_line(
        "wire ratio",
        {{figure_text(*job.wire_ratio), Ink::kBold},
         {fmt::format("{} sent instead of {}", bytes_text(job.bytes_sent), bytes_text(job.allreduce_bytes))},
         {job.payload_ratio ? "payload ratio " + figure_text(*job.payload_ratio) : ""}},
        look);
}

std::string render_step_times(const StepTimeView& times, const Look& look) {
    std::vector<Part> parts;
    const auto add = [&parts](const std::optional<double>& value, std::string_view format) {
        if (value) parts.push_back({fmt::format(fmt::runtime(format), figure_text(*value))});
    };
    add(times.median, "{} ms median");
    add(times.p90, "{} ms p90");
    add(times.last, "last {}");
    add(times.encode, "encode {}");
    add(times.exchange, "exchange {}");
    add(times.decode, "decode {}");
    return parts.empty() ? "" : render_line("step time", parts, look);
}

/// "saves 212 ms of 240 ms a step": beside sending all of it as fp32 at the best speed that the link has shown.
Part saving_of(const BudgetGroupView& group) {
    if (!group.coded_ms || !group.plain_ms) return {""};
    const double saved = *group.plain_ms - *group.coded_ms;
    if (saved < 0) return {fmt::format("costs {} ms more than plain fp32 would", figure_text(-saved)), Ink::kWarn};
    return {fmt::format("saves {} ms of {} ms a step", figure_text(saved), figure_text(*group.plain_ms)), Ink::kGood};
}

std::string render_budget(const JobView& job, const Look& look) {
    const auto& budget = job.budget;
    std::string text;
    for (const auto& group : budget.groups) {
        const auto amount = [&](double value) {
            return budget.ms_per_step ? figure_text(value) + " ms" : bytes_text(static_cast<std::uint64_t>(value));
        };
        const bool is_met = group.verdict == "holding" || group.verdict == "densest";
        text += render_line("budget",
                            {{group.name, Ink::kBold},
                             {group.cost ? fmt::format("{} of {} a step", amount(*group.cost), amount(group.limit))
                                         : amount(group.limit) + " a step"},
                             {group.verdict, is_met                             ? Ink::kGood
                                             : group.verdict == "over at least" ? Ink::kWarn
                                                                                : Ink::kPlain},
                             {group.text},
                             saving_of(group),
                             {"from the " + budget.origin, Ink::kDim}},
                            look);
    }
    return text;
}

/// "saves 212 ms of 240 ms a step": beside what was not chosen.
Part saving_of(const StepAsideView& aside) {
    if (!aside.saved_ms || !aside.coded_ms || !aside.plain_ms) return {""};
    const bool is_aside = aside.aside > 0;
    if (*aside.saved_ms < 0)
        return {fmt::format(fmt::runtime(is_aside ? "costs {} ms more than codecs would" : "plain might save {} ms"),
                            figure_text(-*aside.saved_ms))};
    return {fmt::format("saves {} ms of {} ms a step", figure_text(*aside.saved_ms),
                        figure_text(is_aside ? *aside.coded_ms : *aside.plain_ms)),
            Ink::kGood};
}

std::string render_step_aside(const JobView& job, const Look& look) {
    const auto& aside = job.step_aside;
    if (aside.text.empty()) return "";
    std::vector<Part> parts = {{aside.text}, saving_of(aside)};
    for (const auto& refusal : aside.refusals)
        parts.push_back({fmt::format("{} of {} may not: {}", refusal.tensors, aside.tensors, refusal.text), Ink::kDim});
    return render_line("compression", parts, look);
}

std::string render_groups(const JobView& job, const Look& look) {
    std::string text;
    for (const auto& group : job.groups)
        text +=
            render_line(group.name.empty() ? "steps" : "group",
                        {{group.name, Ink::kBold},
                         {fmt::format("{} committed", count_text(group.steps_committed))},
                         {fmt::format("{} aborted", count_text(group.steps_aborted)),
                          group.steps_aborted > 0 ? Ink::kWarn : Ink::kPlain},
                         {fmt::format("at step {}", group.committed_step)},
                         {group.resumed_step > 0 ? fmt::format("state went on from step {}", group.resumed_step) : ""}},
                        look);
    if (!job.state_text.empty()) text += render_line("state lost", {{job.state_text, Ink::kWarn}}, look);
    return text;
}

/// Ranks of one node and state together: "0-1 on a", "2 on b (gone)".
std::string render_ranks(const JobView& job, const Look& look) {
    std::vector<std::pair<std::pair<std::string, std::string>, std::vector<std::uint64_t>>> runs;
    std::map<std::string, std::vector<std::string>> pids;
    for (const auto& rank : job.ranks) {
        const auto place = std::make_pair(rank.node, rank.state);
        if (runs.empty() || runs.back().first != place) runs.push_back({place, {}});
        runs.back().second.push_back(rank.rank);
        if (rank.is_local && rank.pid > 0) pids[rank.node].push_back(fmt::format("{}", rank.pid));
    }
    std::vector<Part> parts;
    for (const auto& [place, ranks] : runs) {
        auto text = fmt::format("{} on {}", ranges_text(ranks), place.first);
        const bool is_attached = place.second.empty() || place.second == "attached";
        if (!is_attached) text += fmt::format(" ({})", place.second);
        parts.push_back({text, is_attached ? Ink::kPlain : Ink::kWarn});
    }
    for (const auto& [node, list] : pids)
        parts.push_back({fmt::format("local pid{} {}", list.size() == 1 ? "" : "s", fmt::join(list, ", ")), Ink::kDim});
    return parts.empty() ? "" : render_line("ranks", parts, look);
}

std::string render_checks(const JobView& job, const Look& look) {
    std::string text;
    if (job.digests_different > 0) {
        text += render_line(
            "digests",
            {{fmt::format("{} of {} steps differ between nodes", job.digests_different, job.digests_compared),
              Ink::kBad}},
            look);
    } else if (job.digests_compared > 0) {
        text += render_line(
            "digests", {{fmt::format("{} steps compared, identical on all nodes", count_text(job.digests_compared))}},
            look);
    }
    if (job.frames_refused > 0)
        text += render_line(
            "refused",
            {{fmt::format("{} frames", count_text(job.frames_refused)), Ink::kWarn}, {job.last_refusal, Ink::kWarn}},
            look);
    if (job.memory_bytes > 0) text += render_line("memory", {{memory_text(job.memory_bytes)}}, look);
    return text;
}

/// What lies on a GPU and is copied all the same: slower than it could be, and nothing else shows it.
std::string render_staged(const JobView& job, const Look& look) {
    const auto staged = std::count_if(job.tensors.begin(), job.tensors.end(),
                                      [](const TensorView& tensor) { return tensor.place == "staged"; });
    if (staged == 0) return "";
    return render_line(
        "staged",
        {{fmt::format("{} of {} tensor{}", staged, job.tensors.size(), job.tensors.size() == 1 ? "" : "s"), Ink::kWarn},
         {"their GPU memory cannot be shared: copied to the host and back each step", Ink::kWarn}},
        look);
}

/// The `limit` largest tensors, in the document's order.
std::vector<const TensorView*> largest(const std::vector<TensorView>& tensors, std::size_t limit) {
    std::vector<const TensorView*> chosen;
    for (const auto& tensor : tensors) chosen.push_back(&tensor);
    if (chosen.size() <= limit) return chosen;
    std::stable_sort(chosen.begin(), chosen.end(),
                     [](const auto* left, const auto* right) { return left->elements > right->elements; });
    chosen.resize(limit);
    std::sort(chosen.begin(), chosen.end());  // pointers into one vector: its order
    return chosen;
}

Row row_of(const TensorView& tensor, const std::vector<std::string>& codecs) {
    const auto figure = [](const std::optional<double>& value) {
        return value ? figure_text(*value) : std::string("-");
    };
    auto residual = figure(tensor.residual_norm);
    if (tensor.residual_norm && tensor.residual_step > 0) residual += fmt::format(" @{}", tensor.residual_step);
    return {{tensor.name},
            {tensor.group},
            {count_text(tensor.elements)},
            {letter_of(codecs, tensor.codec)},
            {count_text(tensor.kept_elements)},
            {figure(tensor.bits_per_kept)},
            {figure(tensor.payload_ratio)},
            {residual},
            {tensor.variance_source.empty() ? "-" : tensor.variance_source},
            {tensor.similarity ? fmt::format("{:.3f}", *tensor.similarity) : "-"}};
}

std::string render_tensors(const JobView& job, const std::vector<std::string>& codecs, const Look& look,
                           std::size_t limit) {
    if (job.tensors.empty()) return "";
    std::vector<Column> columns = {{"TENSOR", false, 12, 9}, {"GROUP", false, 6, 4},   {"ELEMENTS", true, 0, 6},
                                   {"CODEC", false, 0, 8},   {"KEPT", true, 0, 8},     {"BITS/KEPT", true, 0, 7},
                                   {"RATIO", true, 0, 8},    {"RESIDUAL", true, 0, 5}, {"VARIANCE", false, 0, 3},
                                   {"SIMILAR", true, 0, 4}};
    std::vector<Row> rows;
    const auto shown = largest(job.tensors, limit);
    for (const auto* tensor : shown) rows.push_back(row_of(*tensor, codecs));
    const auto remove_column = [&](std::size_t column) {
        columns.erase(columns.begin() + static_cast<std::ptrdiff_t>(column));
        for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
    };
    const bool has_similarity = std::any_of(job.tensors.begin(), job.tensors.end(),
                                            [](const auto& tensor) { return tensor.similarity.has_value(); });
    if (!has_similarity) remove_column(9);
    if (codecs.size() == 1) remove_column(3);
    if (job.groups.size() < 2) remove_column(1);
    auto text = render_table(columns, rows, look);
    if (shown.size() < job.tensors.size()) {
        std::uint64_t elements = 0;
        for (const auto& tensor : job.tensors) elements += tensor.elements;
        for (const auto* tensor : shown) elements -= std::min(elements, tensor->elements);
        text += "  " +
                look.paint(Ink::kDim, fmt::format("and {} smaller ones with {} elements; --all shows them",
                                                  job.tensors.size() - shown.size(), count_text(elements))) +
                '\n';
    }
    return text;
}

}  // namespace

std::string render_job(const JobView& job, const Look& look, std::size_t tensor_rows) {
    const auto codecs = codecs_of(job);
    return render_title(job, look) + render_waiting(job, look) + render_groups(job, look) + render_ratios(job, look) +
           render_step_times(job.step_ms, look) + render_budget(job, look) + render_step_aside(job, look) +
           render_ranks(job, look) + render_checks(job, look) + render_staged(job, look) +
           render_codecs(job, codecs, look) + render_tensors(job, codecs, look, tensor_rows);
}

}  // namespace gradsieve::cli

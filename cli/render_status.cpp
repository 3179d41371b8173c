#include "cli/render_status.hpp"

#include "cli/human.hpp"
#include "cli/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gradsieve::cli {

namespace {

constexpr std::size_t kLabelWidth = 11;
constexpr std::size_t kTextColumn = 2 + kLabelWidth + 1;

struct Face {
    std::string_view mark;
    std::string_view plain_mark;
    Ink ink;
};
Face face_of(const std::string& state) {
    if (state == "live") return {"●", "*", Ink::kGood};
    if (state == "hung") return {"▲", "!", Ink::kWarn};
    if (state == "dead") return {"✖", "x", Ink::kBad};
    return {"○", "o", Ink::kDim};
}

/// What the first line says of the process, and what to do, for the second.
struct Words {
    std::vector<Part> process;
    std::string advice;
};
Words words_of(const DaemonView& daemon, const HealthView& health) {
    const auto age = time_text(health.heartbeat_age_s);
    const auto pid = fmt::format("pid {}", health.pid);
    const std::string last_word =
        "below is its last word; start it again: systemctl start gradsieved, or gradsieved as a user";
    if (health.state == "live")
        return {{{pid}, {"up " + time_text(daemon.uptime_s)}, {fmt::format("heartbeat {} ago", age)}}, ""};
    if (health.state == "hung" && health.is_suspended)
        return {{{pid + " suspended"}, {"no heartbeat for " + age}},
                fmt::format("a signal or a debugger stopped the process; 'kill -CONT {}' lets it go on", health.pid)};
    if (health.state == "hung")
        return {
            {{pid + " is there"}, {"no heartbeat for " + age}},
            "its conductor hangs; the log and 'gradsieve doctor' tell more; under systemd the watchdog restarts it"};
    if (health.state == "dead") return {{{pid + " is gone"}, {fmt::format("last heartbeat {} ago", age)}}, last_word};
    return {{{fmt::format("pid {} was stopped {} ago", health.pid, age)}}, last_word};
}

Ink ink_of_peer(const PeerView& peer) {
    if (peer.is_self) return Ink::kDim;
    if (peer.state == "up") return Ink::kGood;
    return peer.state == "closed" ? Ink::kBad : Ink::kWarn;
}

std::vector<Part> uses_of(const DaemonView& daemon) {
    auto workers = fmt::format("{} codec worker{}", daemon.threads, daemon.threads == 1 ? "" : "s");
    if (!daemon.cpu_form.empty()) workers += fmt::format(" ({})", daemon.cpu_form);
    auto cpu = fmt::format("CPU {}", time_text(daemon.cpu_s));
    if (daemon.uptime_s >= 1) cpu += fmt::format(", {:.0f} % of a core", 100 * daemon.cpu_s / daemon.uptime_s);
    auto memory = fmt::format("memory {}", memory_text(daemon.memory_bytes));
    if (daemon.memory_limit_bytes > 0) memory += fmt::format(" of {}", memory_text(daemon.memory_limit_bytes));
    return {{workers}, {cpu}, {memory}};
}

std::string render_gpus(const std::vector<GpuView>& gpus, const Look& look) {
    std::string text;
    for (const auto& gpu : gpus) {
        if (!gpu.has_context) continue;  // nothing of the card is held
        std::vector<Part> parts = {
            {gpu.name},
            {fmt::format("state {}", memory_text(gpu.state_bytes))},
            {fmt::format("workspace {} of {}", memory_text(gpu.workspace_bytes), memory_text(gpu.memory_bytes))},
            {fmt::format("{} tensor{} bound", count_text(gpu.buffers), gpu.buffers == 1 ? "" : "s")}};
        if (gpu.threshold_misses > 0)
            parts.push_back({fmt::format("{} threshold misses", count_text(gpu.threshold_misses))});
        if (!gpu.peers.empty()) parts.push_back({"peers " + gpu.peers});
        text += render_line("GPU", parts, look);
    }
    return text;
}

std::string render_security(const SecurityView& security, const Look& look) {
    std::string text;
    if (security.mode == "curve") text = render_line("security", {{"CURVE"}, {"key " + security.public_key}}, look);
    if (!security.warning.empty()) text = render_line("security", {{security.warning, Ink::kWarn}}, look);
    const auto refused = security.keys_refused + security.handshakes_failed;
    if (refused > 0)
        text += render_line("refused",
                            {{fmt::format("{} connection{}", count_text(refused), refused == 1 ? "" : "s"), Ink::kWarn},
                             {"last: " + security.last_refusal, Ink::kWarn}},
                            look);
    return text;
}

std::string render_daemon(const StatusView& view, const Look& look) {
    const auto& daemon = view.daemon;
    std::string text;
    if (view.format == 0) return render_line("document", {{"nothing published yet", Ink::kDim}}, look);
    if (view.format > kDocumentFormat)
        text += render_line(
            "document",
            {{fmt::format("format {}: this tool knows {}, so some may be missing; install matching versions",
                          view.format, kDocumentFormat),
              Ink::kWarn}},
            look);
    text += render_line("listens", {{daemon.bound.empty() ? "for no peers: single node" : daemon.bound}}, look);
    text += render_security(view.security, look);
    text += render_line("socket", {{daemon.socket}}, look);
    text +=
        render_line("config", {{daemon.config_file.empty() ? "no file: built-in values" : daemon.config_file}}, look);
    text += render_line("uses", uses_of(daemon), look);
    text += render_gpus(view.gpus, look);
    if (!daemon.state.empty() && daemon.state != "running")
        text += render_line("state", {{daemon.state, Ink::kWarn}}, look);
    for (const auto& error : daemon.errors)
        text += render_line("error",
                            {{error.text, Ink::kWarn},
                             {fmt::format("{} times", error.count)},
                             {fmt::format("last {} ago", time_text(error.last_s_ago))}},
                            look);
    return text;
}

std::string render_ended(const std::vector<EndedJobView>& jobs, const Look& look) {
    if (jobs.empty()) return "";
    auto text = '\n' + look.paint(Ink::kTitle, "ended jobs") + '\n';
    for (const auto& job : jobs) {
        const auto ratio = job.wire_ratio ? fmt::format("wire ratio {}", figure_text(*job.wire_ratio)) : std::string();
        text += render_line("job",
                            {{job.name, Ink::kBold},
                             {"run " + job.run_id},
                             {fmt::format("{} steps", count_text(job.steps_committed))},
                             {ratio},
                             {fmt::format("{} ago: {}", time_text(job.ago_s), job.text)}},
                            look);
    }
    return text;
}

}  // namespace

std::string render_line(std::string_view label, const std::vector<Part>& parts, const Look& look) {
    const std::string margin(kTextColumn, ' ');
    const auto room = look.width - kTextColumn;
    std::vector<std::string> lines;  // painted
    std::size_t used = room;         // columns of the last one
    for (const auto& part : parts) {
        if (part.text.empty()) continue;
        const auto wrapped = wrap_words(part.text, room, look.ellipsis());
        const auto width = display_width(wrapped.front());
        if (lines.empty() || wrapped.size() > 1 || used + display_width(look.dot()) + width > room) {
            for (const auto& line : wrapped) lines.push_back(look.paint(part.ink, line));
            used = display_width(wrapped.back());
        } else {
            lines.back() += look.paint(Ink::kDim, look.dot()) + look.paint(part.ink, wrapped.front());
            used += display_width(look.dot()) + width;
        }
    }
    std::string text;
    for (const auto& line : lines)
        text += (text.empty() ? "  " + look.paint(Ink::kDim, label) +
                                    margin.substr(2 + std::min(display_width(label), kLabelWidth))
                              : margin) +
                line + '\n';
    return text;
}

std::string render_headline(const Part& head, const std::vector<Part>& parts, const Look& look) {
    auto line = look.paint(head.ink, head.text);
    auto used = display_width(head.text);
    std::string_view gap = "  ";
    for (const auto& part : parts) {
        const auto width = display_width(gap) + display_width(part.text);
        if (part.text.empty() || used + width > look.width) continue;
        line += look.paint(Ink::kDim, gap) + look.paint(part.ink, part.text);
        used += width;
        gap = look.dot();
    }
    return line + '\n';
}

std::string ranges_text(const std::vector<std::uint64_t>& numbers) {
    std::string text;
    for (std::size_t first = 0; first < numbers.size();) {
        auto last = first;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        if (!text.empty()) text += ", ";
        text += first == last ? fmt::format("{}", numbers[first]) : fmt::format("{}-{}", numbers[first], numbers[last]);
        first = last + 1;
    }
    return text;
}

std::string render_health(const DaemonView& daemon, const HealthView& health, const Look& look) {
    const auto face = face_of(health.state);
    const auto words = words_of(daemon, health);
    auto parts = words.process;
    parts.push_back({daemon.node.empty() ? "" : "node " + cut_middle(daemon.node, 24, look.ellipsis())});
    parts.push_back({daemon.version.empty() ? "" : "gradsieved " + daemon.version, Ink::kDim});
    auto text = render_headline(
        {fmt::format("{} {}", look.has_unicode ? face.mark : face.plain_mark, health.state), face.ink}, parts, look);
    if (!words.advice.empty())
        for (const auto& line : wrap_words(words.advice, look.width - 2, look.ellipsis()))
            text += "  " + look.paint(face.ink, line) + '\n';
    return text;
}

std::string render_peers(const std::vector<PeerView>& peers, const Look& look) {
    const std::vector<Column> columns = {{"NAME", false, 16, 9}, {"ADDRESS", false, 13, 5}, {"STATE", false, 0, 9},
                                         {"HEARD", true, 0, 8},  {"SENT", true, 0, 7},      {"RECEIVED", true, 0, 7},
                                         {"QUEUED", true, 0, 6}, {"REFUSED", true, 0, 4}};
    std::vector<Row> rows;
    std::string troubles;
    for (const auto& peer : peers) {
        if (peer.is_self) {
            rows.push_back({{peer.name}, {peer.address}, {"this node", Ink::kDim}, {}, {}, {}, {}, {}});
            continue;
        }
        rows.push_back({{peer.name},
                        {peer.address},
                        {peer.state, ink_of_peer(peer)},
                        {peer.silent_s ? time_text(*peer.silent_s) : "never"},
                        {bytes_text(peer.bytes_sent)},
                        {bytes_text(peer.bytes_received)},
                        {bytes_text(peer.queued_bytes)},
                        {count_text(peer.frames_refused), peer.frames_refused > 0 ? Ink::kWarn : Ink::kPlain}});
        if (!peer.last_refusal.empty())
            troubles +=
                render_line("refused", {{fmt::format("from {}: {}", peer.name, peer.last_refusal), Ink::kWarn}}, look);
        if (!peer.handshake.empty()) troubles += render_line("handshake", {{peer.handshake, Ink::kWarn}}, look);
    }
    return look.paint(Ink::kTitle, "peers") + '\n' + render_table(columns, rows, look) + troubles;
}

std::string render_status(const StatusView& view, const HealthView& health, const Look& look, std::size_t tensor_rows) {
    auto text = render_health(view.daemon, health, look) + render_daemon(view, look);
    if (!view.peers.empty()) text += '\n' + render_peers(view.peers, look);
    for (const auto& job : view.jobs) text += '\n' + render_job(job, look, tensor_rows);
    if (view.jobs.empty() && view.format != 0)
        text += '\n' + look.paint(Ink::kTitle, "no jobs") + '\n' +
                render_line("", {{"training processes attach at the socket", Ink::kDim}}, look);
    return text + render_ended(view.ended_jobs, look) + render_states(view, look);
}

}  // namespace gradsieve::cli

// Kept states on the status screen: what the next run of a job goes on from, and what was lost.
#include "cli/human.hpp"
#include "cli/render_status.hpp"

#include <fmt/format.h>

namespace gradsieve::cli {

namespace {

std::string steps_text(const KeptStateView& state) {
    std::string text;
    for (const auto& group : state.groups)
        text += fmt::format("{}{}step {}", text.empty() ? "" : ", ",
                            group.name.empty() ? "" : "group " + group.name + " at ", group.committed_step);
    return text;
}

}  // namespace

std::string render_states(const StatusView& view, const Look& look) {
    if (view.kept.empty() && view.lost.empty()) return "";
    auto text = '\n' + look.paint(Ink::kTitle, "kept states") + '\n';
    for (const auto& state : view.kept)
        text += render_line(cut_middle(state.name, 16, look.ellipsis()),
                            {{"run " + state.run_id},
                             {steps_text(state)},
                             {memory_text(state.bytes) +
                              (state.gpu_bytes > 0 ? " and " + memory_text(state.gpu_bytes) + " on GPUs" : "")},
                             {fmt::format("for {}: {}", time_text(state.age_s), state.text)}},
                            look);
    if (!view.kept.empty() && !view.is_parked)
        text += render_line("", {{"no service manager keeps them: they end with the daemon", Ink::kWarn}}, look);
    for (const auto& state : view.lost)
        text += render_line(
            "lost",
            {{state.name, Ink::kWarn}, {fmt::format("{} ago: {}", time_text(state.age_s), state.text), Ink::kWarn}},
            look);
    return text;
}

}  // namespace gradsieve::cli

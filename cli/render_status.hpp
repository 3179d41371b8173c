// The status screen as text: a pure function of the document, the daemon's health and the look. Never reads a clock, a
// file or the terminal; any thread.
#pragma once

#include "cli/console.hpp"
#include "cli/status_view.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::cli {

/// Tensor rows of one job unless all are wanted; the largest are shown.
inline constexpr std::size_t kDefaultTensorRows = 40;

/// The whole screen. Its first line tells live, hung, dead and stopped apart.
[[nodiscard]] std::string render_status(const StatusView& view, const HealthView& health, const Look& look,
                                        std::size_t tensor_rows = kDefaultTensorRows);
/// Its parts, each ended by a newline.
[[nodiscard]] std::string render_health(const DaemonView& daemon, const HealthView& health, const Look& look);
[[nodiscard]] std::string render_peers(const std::vector<PeerView>& peers, const Look& look);
/// What is kept of jobs that do not run, and what was lost; empty if nothing is.
[[nodiscard]] std::string render_states(const StatusView& view, const Look& look);
[[nodiscard]] std::string render_job(const JobView& job, const Look& look, std::size_t tensor_rows);

struct Part {
    std::string text;
    Ink ink = Ink::kPlain;
};
/// "label      part · part", wrapped under the first part where the line is full, a long part at its words. Empty parts
/// are left out; nothing at all is drawn if all are empty.
[[nodiscard]] std::string render_line(std::string_view label, const std::vector<Part>& parts, const Look& look);
/// "head  part · part": parts that find no room on the one line are left out.
[[nodiscard]] std::string render_headline(const Part& head, const std::vector<Part>& parts, const Look& look);
/// "3", "0-3, 5" for ascending numbers.
[[nodiscard]] std::string ranges_text(const std::vector<std::uint64_t>& numbers);

}  // namespace gradsieve::cli

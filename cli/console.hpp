// Where a command writes and how it should look there. A value, so that tests stand in for a terminal. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace gradsieve::cli {

enum class Ink : std::uint8_t { kPlain, kBold, kDim, kGood, kWarn, kBad, kTitle };

/// How text may look. Everything that is drawn depends on this and on the data alone.
struct Look {
    std::size_t width = 100;  ///< columns; lines are cut to it
    std::size_t height = 0;   ///< rows of the terminal; 0 = without limit
    bool has_colour = false;
    bool has_unicode = true;
    [[nodiscard]] std::string paint(Ink ink, std::string_view text) const;
    [[nodiscard]] std::string_view ellipsis() const noexcept { return has_unicode ? "…" : "~"; }
    [[nodiscard]] std::string_view dot() const noexcept { return has_unicode ? " · " : " - "; }
};

struct Console {
    std::ostream& out;
    std::ostream& error;
    Look look;
    bool is_terminal = false;
};

/// The look of standard output: colour on a terminal unless NO_COLOR is set or TERM is dumb; width from the terminal,
/// else $COLUMNS, else 100 columns; at least 60, at most 160. Sets the process's character set from the environment.
[[nodiscard]] Look look_of_stdout();
[[nodiscard]] bool is_stdout_terminal();

}  // namespace gradsieve::cli

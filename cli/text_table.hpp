// A table in a given width: columns take what their cells need, one column gives way, and where that is not enough the
// least important columns go. Pure; any thread.
#pragma once

#include "cli/console.hpp"

#include <string>
#include <vector>

namespace gradsieve::cli {

struct Column {
    std::string title;
    bool is_right = false;        ///< numbers stand right
    std::size_t least_width = 0;  ///< > 0: gives way down to this by cutting its cells
    int importance = 1;           ///< the lowest goes first if there is no room; columns of 9 always stay
};
struct Cell {
    std::string text;
    Ink ink = Ink::kPlain;
};
using Row = std::vector<Cell>;

/// Title line and rows, each ended by a newline, indented by two. Every row has one cell per column.
[[nodiscard]] std::string render_table(const std::vector<Column>& columns, const std::vector<Row>& rows,
                                       const Look& look);

}  // namespace gradsieve::cli

#include "cli/text_table.hpp"

#include "cli/human.hpp"

#include <algorithm>
#include <numeric>

namespace gradsieve::cli {

namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kRoomyWidth = 96;  // from here on columns stand two apart
constexpr int kStays = 9;

struct Layout {
    std::vector<std::size_t> shown;   ///< columns that stay
    std::vector<std::size_t> widths;  ///< by column
    std::size_t gap = 1;

    [[nodiscard]] std::size_t total() const {
        const auto cells =
            std::accumulate(shown.begin(), shown.end(), std::size_t{0},
                            [this](std::size_t sum, std::size_t column) { return sum + widths[column]; });
        return kIndent + cells + gap * (shown.empty() ? 0 : shown.size() - 1);
    }
};

/// Takes the excess out of columns that give way, first of the widest.
void shrink(const std::vector<Column>& columns, Layout& layout, std::size_t limit) {
    while (layout.total() > limit) {
        std::size_t widest = columns.size();
        for (const auto column : layout.shown) {
            const bool gives_way =
                columns[column].least_width > 0 && layout.widths[column] > columns[column].least_width;
            if (gives_way && (widest == columns.size() || layout.widths[column] > layout.widths[widest]))
                widest = column;
        }
        if (widest == columns.size()) return;
        --layout.widths[widest];
    }
}

Layout lay_out(const std::vector<Column>& columns, const std::vector<Row>& rows, const Look& look) {
    Layout layout;
    layout.gap = look.width >= kRoomyWidth ? 2 : 1;
    for (std::size_t column = 0; column < columns.size(); ++column) {
        auto width = display_width(columns[column].title);
        for (const auto& row : rows) width = std::max(width, display_width(row[column].text));
        layout.widths.push_back(width);
        layout.shown.push_back(column);
    }
    const auto natural = layout.widths;
    for (;;) {
        layout.widths = natural;
        shrink(columns, layout, look.width);
        if (layout.total() <= look.width) return layout;
        const auto least = std::min_element(
            layout.shown.begin(), layout.shown.end(),
            [&](std::size_t left, std::size_t right) { return columns[left].importance < columns[right].importance; });
        if (least == layout.shown.end() || columns[*least].importance >= kStays) return layout;
        layout.shown.erase(least);
    }
}

std::string line_of(const std::vector<Column>& columns, const Layout& layout, const Row& row, const Look& look) {
    std::string line(kIndent, ' ');
    for (const auto column : layout.shown) {
        const auto text = cut_middle(row[column].text, layout.widths[column], look.ellipsis());
        const std::string padding(layout.widths[column] - display_width(text), ' ');
        const bool is_last = column == layout.shown.back();
        if (column != layout.shown.front()) line += std::string(layout.gap, ' ');
        if (columns[column].is_right) line += padding;
        line += look.paint(row[column].ink, text);
        if (!columns[column].is_right && !is_last) line += padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line + '\n';
}

}  // namespace

std::string render_table(const std::vector<Column>& columns, const std::vector<Row>& rows, const Look& look) {
    const auto layout = lay_out(columns, rows, look);
    Row titles;
    for (const auto& column : columns) titles.push_back({column.title, Ink::kDim});
    auto text = line_of(columns, layout, titles, look);
    for (const auto& row : rows) text += line_of(columns, layout, row, look);
    return text;
}

}  // namespace gradsieve::cli

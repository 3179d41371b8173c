#include "codec/pipeline_whole.hpp"

#include "codec/pipeline_stages.hpp"

#include <algorithm>
#include <array>

namespace gradsieve::codec {
namespace {

constexpr std::string_view kLowRankName = "lowrank", kSketchName = "sketch";
constexpr std::array<std::string_view, 2> kWholeNames = {kLowRankName, kSketchName};
constexpr std::string_view kAutoColumns = "auto";
constexpr std::string_view kSquareColumns = "square";
constexpr NumberRange kRank = {1, kMostRank, false, "a whole number in [1, 64]"};
constexpr NumberRange kColumns = {1, static_cast<double>(kMostColumns), false,
                                  "auto, square or a whole number in [1, 2^30]"};
constexpr NumberRange kSketchRatio = {0, 0.25, true, "(0, 0.25]"};
constexpr NumberRange kSketchRows = {1, 7, false, "1, 3, 5 or 7"};
constexpr NumberRange kSketchColumns = {static_cast<double>(kLeastSketchColumns),
                                        static_cast<double>(kMostSketchColumns), false,
                                        "auto or a whole number in [64, 2^26]"};

Status read_low_rank(const StageText& text, Whole& ret_whole) {
    ArgumentReader arguments(text);
    ret_whole.kind = WholeKind::kLowRank;
    const double rank = arguments.number("rank", 1, kRank);
    const auto columns = arguments.take("columns");
    double number = 1;
    if (columns == kSquareColumns)
        ret_whole.columns = kColumnsSquare;
    else if (columns && columns != kAutoColumns)
        number = arguments.parse_number("columns", *columns, kColumns);
    GRADSIEVE_TRY(read_whole(arguments, rank, "codec stage lowrank: rank", kRank, ret_whole.rank));
    if (!columns || columns == kAutoColumns || columns == kSquareColumns) return {};
    ret_whole.columns = static_cast<std::int64_t>(number);
    if (static_cast<double>(ret_whole.columns) == number) return {};
    return bad_text("codec stage lowrank: columns", number_text(number), kColumns.text, "write e.g. lowrank(4, 512)");
}

/// A row's cells and the values follow from the ratio alone then, whatever the tensor.
Status check_share(const Whole& whole) {
    const double most = 0.5 / (whole.rows + 1);
    if (whole.columns != kColumnsOfKept || whole.ratio < most) return {};
    return bad_text("codec stage sketch: ratio", number_text(whole.ratio),
                    "less than " + number_text(most) + " with " + std::to_string(whole.rows) +
                        (whole.rows == 1 ? " row" : " rows") + " and columns=auto",
                    "sketch and values would be half of the tensor or more: lower the ratio, take fewer rows, or say "
                    "how many columns");
}

Status read_sketch(const StageText& text, Whole& ret_whole) {
    ArgumentReader arguments(text);
    ret_whole.kind = WholeKind::kSketch;
    ret_whole.ratio = arguments.number("ratio", std::nullopt, kSketchRatio);
    const double rows = arguments.number("rows", 5, kSketchRows);
    const auto columns = arguments.take("columns");
    const bool is_auto = !columns || columns == kAutoColumns;
    double number = 0;
    if (!is_auto) number = arguments.parse_number("columns", *columns, kSketchColumns);
    GRADSIEVE_TRY(read_whole(arguments, rows, "codec stage sketch: rows", kSketchRows, ret_whole.rows));
    if (ret_whole.rows % 2 == 0)
        return bad_text("codec stage sketch: rows", std::to_string(ret_whole.rows), kSketchRows.text,
                        "a median wants one in the middle: write e.g. sketch(0.01, 5)");
    ret_whole.columns = is_auto ? kColumnsOfKept : static_cast<std::int64_t>(number);
    if (!is_auto && static_cast<double>(ret_whole.columns) != number)
        return bad_text("codec stage sketch: columns", number_text(number), kSketchColumns.text,
                        "write e.g. sketch(0.01, 5, 10000)");
    return check_share(ret_whole);
}

}  // namespace

std::span<const std::string_view> whole_names() noexcept { return kWholeNames; }

bool is_whole(std::string_view name) noexcept {
    return std::find(kWholeNames.begin(), kWholeNames.end(), name) != kWholeNames.end();
}

Status read_whole_codec(std::span<const StageText> stages, Whole& ret_whole) {
    if (stages.size() > 1)
        return bad_text("codec stage behind " + std::string(stages.front().name), stages[1].name, "none",
                        "it stands in place of selector, quantizer and index coder: remove the stage");
    return stages.front().name == kSketchName ? read_sketch(stages.front(), ret_whole)
                                              : read_low_rank(stages.front(), ret_whole);
}

std::string whole_text(const Whole& whole) {
    // kColumnsOfShape and kColumnsOfKept are one number.
    const std::string columns = whole.columns == kColumnsOfShape  ? std::string(kAutoColumns)
                                : whole.columns == kColumnsSquare ? std::string(kSquareColumns)
                                                                  : std::to_string(whole.columns);
    if (whole.kind == WholeKind::kSketch)
        return std::string(kSketchName) + "(ratio=" + number_text(whole.ratio) +
               ", rows=" + std::to_string(whole.rows) + ", columns=" + columns + ")";
    return std::string(kLowRankName) + "(rank=" + std::to_string(whole.rank) + ", columns=" + columns + ")";
}

}  // namespace gradsieve::codec

#include "codec/pipeline_whole.hpp"

#include "codec/pipeline_stages.hpp"

#include <algorithm>
#include <array>

namespace gradsieve::codec {
namespace {

constexpr std::array<std::string_view, 1> kWholeNames = {"lowrank"};
constexpr std::string_view kAutoColumns = "auto";
constexpr std::string_view kSquareColumns = "square";
constexpr NumberRange kRank = {1, kMostRank, false, "a whole number in [1, 64]"};
constexpr NumberRange kColumns = {1, static_cast<double>(kMostColumns), false,
                                  "auto, square or a whole number in [1, 2^30]"};

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

}  // namespace

std::span<const std::string_view> whole_names() noexcept { return kWholeNames; }

bool is_whole(std::string_view name) noexcept {
    return std::find(kWholeNames.begin(), kWholeNames.end(), name) != kWholeNames.end();
}

Status read_whole_codec(std::span<const StageText> stages, Whole& ret_whole) {
    if (stages.size() > 1)
        return bad_text("codec stage behind " + std::string(stages.front().name), stages[1].name, "none",
                        "it stands in place of selector, quantizer and index coder: remove the stage");
    return read_low_rank(stages.front(), ret_whole);
}

std::string whole_text(const Whole& whole) {
    const std::string columns = whole.columns == kColumnsOfShape  ? std::string(kAutoColumns)
                                : whole.columns == kColumnsSquare ? std::string(kSquareColumns)
                                                                  : std::to_string(whole.columns);
    return std::string(kWholeNames[0]) + "(rank=" + std::to_string(whole.rank) + ", columns=" + columns + ")";
}

}  // namespace gradsieve::codec

#include "codec/stages/low_rank.hpp"

#include "codec/philox.hpp"
#include "codec/settle_whole.hpp"
#include "codec/stages/stage_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace gradsieve::codec {
namespace {

/// What the words of the key are for, in the counter's second word.
constexpr std::uint32_t kFactorPurpose = 8U << 24U;
/// Of a column's norm: below, what is left of it is the rounding of fp32 numbers.
constexpr double kLeastLeft = 0x1p-20;
constexpr std::size_t kSumLanes = 8;

/// Eight strided lanes in order, then lane l takes lane l + 4, l + 2, l + 1.
double fold(std::array<double, kSumLanes>& lanes) {
    for (std::size_t half = kSumLanes / 2; half > 0; half /= 2)
        for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
}

template <typename T>
double dot(const T* left, const T* right, std::size_t count) {
    std::array<double, kSumLanes> lanes{};
    const std::size_t whole = count / kSumLanes * kSumLanes;
    for (std::size_t at = 0; at < whole; at += kSumLanes)
        for (std::size_t lane = 0; lane < kSumLanes; ++lane)
            lanes[lane] += static_cast<double>(left[at + lane]) * static_cast<double>(right[at + lane]);
    for (std::size_t at = whole; at < count; ++at)
        lanes[at - whole] += static_cast<double>(left[at]) * static_cast<double>(right[at]);
    return fold(lanes);
}

template <typename T>
double norm(const T* values, std::size_t count) {
    return std::sqrt(dot(values, values, count));
}

void draw_row(PhiloxKey key, std::uint32_t number, std::span<float> ret_row) {
    for (std::size_t at = 0; at < ret_row.size(); ++at) {
        const PhiloxBlock block = philox({{static_cast<std::uint32_t>(at / 4), kFactorPurpose, number, 0}}, key);
        ret_row[at] = static_cast<float>(static_cast<std::int32_t>(block.words[at % 4])) * 0x1p-31F;
    }
}

}  // namespace

std::uint32_t MatrixShape::row_elements(ElementCount row) const noexcept {
    return static_cast<std::uint32_t>(std::min(columns, elements - row * columns));
}

MatrixShape matrix_shape(const Pipeline& pipeline, ElementCount elements) noexcept {
    MatrixShape shape{.elements = elements, .rank = static_cast<std::uint32_t>(pipeline.whole.rank)};
    if (pipeline.whole.columns > 0) {
        shape.columns = std::min(static_cast<ElementCount>(pipeline.whole.columns), elements);
    } else {
        shape.columns = static_cast<ElementCount>(std::sqrt(static_cast<double>(elements)));
        while (shape.columns * shape.columns < elements) ++shape.columns;
    }
    if (shape.columns > 0) shape.rows = (elements + shape.columns - 1) / shape.columns;
    return shape;
}

bool is_worth_factoring(const MatrixShape& shape) noexcept {
    return 2 * (shape.left_elements() + shape.right_elements()) < shape.elements;
}

Pipeline settle_low_rank(const Pipeline& pipeline, std::span<const std::uint64_t> shape) {
    if (pipeline.whole.kind != WholeKind::kLowRank) return pipeline;
    ElementCount elements = 1;
    for (const auto extent : shape) elements *= extent;
    Pipeline settled = pipeline;
    const bool is_vector = shape.size() <= 1 && pipeline.whole.columns == kColumnsOfShape;
    if (!is_vector && elements > 0) {
        if (settled.whole.columns == kColumnsOfShape) {
            const auto columns = elements / shape.front();
            if (columns <= static_cast<ElementCount>(kMostColumns))
                settled.whole.columns = static_cast<std::int64_t>(columns);
        }
        const auto matrix = matrix_shape(settled, elements);
        settled.whole.columns = static_cast<std::int64_t>(std::min<ElementCount>(matrix.columns, kMostColumns));
        if (matrix.columns <= static_cast<ElementCount>(kMostColumns) && is_worth_factoring(matrix)) return settled;
    }
    return sent_as_it_is(pipeline);
}

void orthonormalize(std::span<const float> matrix, std::uint32_t rank, std::span<float> ret_matrix,
                    std::vector<double>& scratch) {
    const std::size_t rows = matrix.size() / rank;
    scratch.resize(matrix.size());
    const auto column = [&](std::uint32_t number) { return scratch.data() + number * rows; };
    for (std::size_t row = 0; row < rows; ++row)
        for (std::uint32_t number = 0; number < rank; ++number) column(number)[row] = matrix[row * rank + number];
    for (std::uint32_t number = 0; number < rank; ++number) {
        double* values = column(number);
        const double before = norm(values, rows);
        for (int pass = 0; pass < 2; ++pass)
            for (std::uint32_t other = 0; other < number; ++other) {
                const double* unit = column(other);
                const double share = dot(values, unit, rows);
                for (std::size_t row = 0; row < rows; ++row) values[row] -= share * unit[row];
            }
        const double left = norm(values, rows);
        const bool is_zero = !(left > before * kLeastLeft);
        for (std::size_t row = 0; row < rows; ++row) values[row] = is_zero ? 0.0 : values[row] / left;
    }
    for (std::size_t row = 0; row < rows; ++row)
        for (std::uint32_t number = 0; number < rank; ++number)
            ret_matrix[row * rank + number] = static_cast<float>(column(number)[row]);
}

void prepare_factors(std::span<const float> right, std::uint32_t rank, std::uint64_t seed, TensorId tensor, Step step,
                     std::span<float> ret_factors) {
    const std::size_t columns = right.size() / rank;
    const std::uint64_t mixed = mix64(mix64(mix64(seed) + tensor) + step);
    const PhiloxKey key{static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32U)};
    for (std::uint32_t number = 0; number < rank; ++number) {
        const auto before = right.subspan(number * columns, columns);
        const auto row = ret_factors.subspan(number * columns, columns);
        std::copy(before.begin(), before.end(), row.begin());
        double length = norm(row.data(), columns);
        if (!(length > 0)) {
            draw_row(key, number, row);
            length = norm(row.data(), columns);
        }
        for (float& value : row) value = static_cast<float>(static_cast<double>(value) / length);
    }
}

namespace stages {
namespace {

constexpr std::string_view kAutoColumns = "auto";
constexpr std::string_view kSquareColumns = "square";
constexpr NumberRange kRank = {1, kMostRank, false, "a whole number in [1, 64]"};
constexpr NumberRange kColumns = {1, static_cast<double>(kMostColumns), false,
                                  "auto, square or a whole number in [1, 2^30]"};

Status read(ArgumentReader& arguments, Whole& ret_whole) {
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

std::string arguments_text(const Whole& whole) {
    const std::string columns = whole.columns == kColumnsOfShape  ? std::string(kAutoColumns)
                                : whole.columns == kColumnsSquare ? std::string(kSquareColumns)
                                                                  : std::to_string(whole.columns);
    return "rank=" + std::to_string(whole.rank) + ", columns=" + columns;
}

}  // namespace

const WholeStage LowRank::kStage = {
    .row =
        StageRow{
            "lowrank", "whole codec", "rank=1, columns=auto|square|number", "tensor",
            "r: 4 B per element and generation; a factor: 4 B times rank times columns",
            "the tensor as a matrix of so many columns (auto: its extents behind the first, multiplied), sent as two "
            "factors of `rank` columns each, one after the other: M Q, made orthonormal of all nodes' mean, and the "
            "transposed M times that, which is the next step's Q; stands in place of selector, quantizer and index "
            "coder; vectors, and what factors would not halve, are sent as all | f32",
            "Vogels, Karimireddy, Jaggi 2019, PowerSGD: Practical Low-Rank Gradient Compression for Distributed "
            "Optimization, arXiv:1905.13727"},
    .kind = WholeKind::kLowRank,
    .read = read,
    .arguments = arguments_text,
};

}  // namespace stages

}  // namespace gradsieve::codec

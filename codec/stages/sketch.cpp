#include "codec/stages/sketch.hpp"

#include "codec/select_topk.hpp"
#include "codec/settle_whole.hpp"
#include "codec/stages/stage_text.hpp"

#include <algorithm>
#include <bit>

namespace gradsieve::codec {

SketchShape sketch_shape(const Pipeline& pipeline, ElementCount elements) noexcept {
    SketchShape shape{.elements = elements, .rows = static_cast<std::uint32_t>(pipeline.whole.rows)};
    if (elements == 0) return shape;
    shape.kept = top_k_count(pipeline.whole.ratio, elements);
    const bool is_auto = pipeline.whole.columns == kColumnsOfKept;
    shape.columns = std::max<ElementCount>(
        is_auto ? shape.kept : std::min<ElementCount>(static_cast<ElementCount>(pipeline.whole.columns), elements),
        kLeastSketchColumns);
    shape.block =
        static_cast<std::uint32_t>(std::bit_floor(std::min<ElementCount>(shape.columns, kSketchPieceElements)));
    return shape;
}

Pipeline settle_sketch(const Pipeline& pipeline, ElementCount elements) {
    if (pipeline.whole.kind != WholeKind::kSketch) return pipeline;
    const SketchShape shape = sketch_shape(pipeline, elements);
    if (2 * (shape.cells() + shape.kept) < elements) return pipeline;
    return sent_as_it_is(pipeline);
}

SketchDraws::SketchDraws(const SketchShape& shape, std::uint64_t seed, TensorId tensor, Step step) : shape_(shape) {
    const std::uint64_t key = mix64(mix64(mix64(seed) + tensor) + step);
    key_ = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32U)};
    for (std::uint32_t row = 0; row < shape.rows; ++row) signs_[row] = random_rounds({key_, row, 0});
}

ElementCount SketchDraws::offset(std::uint32_t row, ElementCount block) const noexcept {
    const ElementCount counter = block / 4;
    const PhiloxBlock words = philox({{static_cast<std::uint32_t>(counter),
                                       static_cast<std::uint32_t>(counter >> 32U) | kSketchOffsetPurpose, row, 0}},
                                     key_);
    return words.words[block % 4] * shape_.columns >> 32U;
}

void insert_sketch(const SketchShape& shape, const SketchDraws& draws, const SketchKernels& kernels, ElementCount first,
                   std::span<const float> values, std::span<float> inout_cells) {
    draws.visit_blocks(kernels, inout_cells.data(), first, values.size(),
                       [&](std::size_t at, std::uint32_t count, const SketchRun& run) {
                           kernels.insert(run, shape.rows, values.data() + at, count);
                       });
}

void finish_sketch(const SketchShape& shape, std::span<const float> cells, std::span<float> ret_rows) {
    for (std::uint32_t row = 0; row < shape.rows; ++row) {
        const auto sums = cells.subspan(row * shape.row_room(), shape.row_room());
        const auto out = ret_rows.subspan(row * shape.columns, shape.columns);
        std::copy_n(sums.begin(), shape.columns, out.begin());
        for (std::uint32_t at = 0; at < shape.block; ++at) out[at] += sums[shape.columns + at];
    }
}

void spread_sketch(const SketchShape& shape, std::span<const float> rows, std::span<float> ret_cells) {
    for (std::uint32_t row = 0; row < shape.rows; ++row) {
        const auto from = rows.subspan(row * shape.columns, shape.columns);
        const auto out = ret_cells.subspan(row * shape.row_room(), shape.row_room());
        std::ranges::copy(from, out.begin());
        std::ranges::copy(from.first(shape.block), out.begin() + static_cast<std::ptrdiff_t>(shape.columns));
    }
}

void estimate_sketch(const SketchShape& shape, const SketchDraws& draws, const SketchKernels& kernels,
                     ElementCount first, std::span<float> cells, std::span<float> ret_values) {
    draws.visit_blocks(kernels, cells.data(), first, ret_values.size(),
                       [&](std::size_t at, std::uint32_t count, const SketchRun& run) {
                           kernels.estimate(run, shape.rows, count, ret_values.data() + at);
                       });
}

namespace stages {
namespace {

constexpr std::string_view kAutoColumns = "auto";
constexpr NumberRange kSketchRatio = {0, 0.25, true, "(0, 0.25]"};
constexpr NumberRange kSketchRows = {1, 7, false, "1, 3, 5 or 7"};
constexpr NumberRange kSketchColumns = {static_cast<double>(kLeastSketchColumns),
                                        static_cast<double>(kMostSketchColumns), false,
                                        "auto or a whole number in [64, 2^26]"};

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

Status read(ArgumentReader& arguments, Whole& ret_whole) {
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

std::string arguments_text(const Whole& whole) {
    const std::string columns =
        whole.columns == kColumnsOfKept ? std::string(kAutoColumns) : std::to_string(whole.columns);
    return "ratio=" + number_text(whole.ratio) + ", rows=" + std::to_string(whole.rows) + ", columns=" + columns;
}

}  // namespace

const WholeStage Sketch::kStage = {
    .row =
        StageRow{
            "sketch", "whole codec", "ratio, rows=5, columns=auto|number", "tensor",
            "r: 4 B per element and generation",
            "every node sends a count sketch, `rows` rows of so many columns (auto: as many as the ratio's share of "
            "elements, at least 64), whose mean over nodes estimates every element of the mean; of the ratio's share "
            "with the largest estimates every node then sends exact values; those elements come back and are zero in "
            "the residual; stands in place of selector, quantizer and index coder; what it would not halve is sent as "
            "all | f32",
            "Charikar, Chen, Farach-Colton 2002, Finding Frequent Items in Data Streams; Ivkin, Rothchild, Ullah, "
            "Braverman, Stoica, Arora 2019, Communication-efficient Distributed SGD with Sketching, arXiv:1903.04488"},
    .kind = WholeKind::kSketch,
    .read = read,
    .arguments = arguments_text,
};

}  // namespace stages

}  // namespace gradsieve::codec

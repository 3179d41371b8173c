#include "codec/sketch.hpp"

#include "codec/select_topk.hpp"
#include "codec/settle_whole.hpp"

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

}  // namespace gradsieve::codec

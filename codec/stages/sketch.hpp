// sketch: every node sends a count sketch of r plus the gradient, `rows` rows of `columns` cells; their mean is the
// sketch of the mean, since sketches are linear, and gives an estimate of every element of it. Of the k elements with
// the largest estimates every node then sends its own exact values; their means are the result, and each node's
// residual is zero there. An estimate is the median over rows of a cell's sum with the element's sign in that row: one
// row's is unbiased, with a variance of at most (|x|^2 - x_i^2) / columns.
//
// Blocks of elements go to cells side by side, turned by a random offset for each block and row, so that both sides
// read memory in order. Elements of one block never meet in a row; those of two meet with probability 1 / columns, as
// those of a count sketch. Signs and offsets are drawn anew at each step, the same on every node.
//
// Sources: Charikar, Chen, Farach-Colton 2002, Finding Frequent Items in Data Streams (count sketch); Ivkin, Rothchild,
// Ullah, Braverman, Stoica, Arora 2019, Communication-efficient Distributed SGD with Sketching (SketchedSGD: exact
// values of heavy coordinates in a second round). Plain values; any thread.
#pragma once

#include "base/id.hpp"
#include "codec/pipeline.hpp"
#include "codec/sketch_kernels.hpp"

#include <array>
#include <span>

namespace gradsieve::codec {

struct WholeStage;

struct SketchShape {
    ElementCount elements = 0;
    ElementCount kept = 0;     ///< k, of which exact values are sent; at most all
    std::uint32_t rows = 1;    ///< odd, at most kMostSketchRows
    ElementCount columns = 0;  ///< 0 of no elements
    std::uint32_t block = 0;   ///< elements that stand side by side, a power of two, at most `columns`
    [[nodiscard]] ElementCount cells() const noexcept { return rows * columns; }
    /// Cells of a row with room behind it for blocks that begin near its end.
    [[nodiscard]] ElementCount row_room() const noexcept { return columns + block; }
};

/// As the pipeline says, with at most as many columns as elements; without columns in it as many as k. At least
/// kLeastSketchColumns in any case.
[[nodiscard]] SketchShape sketch_shape(const Pipeline& pipeline, ElementCount elements) noexcept;

/// What a tensor of so many elements is sent by: `all | f32` with the same front where sketch and values are not less
/// than half of it. Pipelines without sketch are returned as they are. Same result on every node.
[[nodiscard]] Pipeline settle_sketch(const Pipeline& pipeline, ElementCount elements);

/// The signs and offsets of one tensor in one step. `seed`: EncodeRequest::selection_seed.
class SketchDraws {
public:
    SketchDraws() = default;
    SketchDraws(const SketchShape& shape, std::uint64_t seed, TensorId tensor, Step step);

    /// Calls `visit(first, count, run)` for the blocks of elements [first, first + count), which starts at a multiple
    /// of kSketchPieceElements; `cells` are rows of row_room() each.
    template <typename Visit>
    void visit_blocks(const SketchKernels& kernels, float* cells, ElementCount first, std::size_t count,
                      Visit visit) const;
    /// First cell of block `block` in a row.
    [[nodiscard]] ElementCount offset(std::uint32_t row, ElementCount block) const noexcept;
    /// What all words are drawn with: philox of the counter {number, purpose, row, 0}.
    [[nodiscard]] PhiloxKey key() const noexcept { return key_; }

private:
    SketchShape shape_;
    PhiloxKey key_;
    std::array<RandomRounds, kMostSketchRows> signs_;  ///< by row
};

/// Adds elements [first, first + values.size()) to the cells, rows of row_room() each. Magnitudes are cut off at
/// kSketchLimit.
void insert_sketch(const SketchShape& shape, const SketchDraws& draws, const SketchKernels& kernels, ElementCount first,
                   std::span<const float> values, std::span<float> inout_cells);
/// Once all are added: what stands behind a row's end is added to its beginning. `ret_rows`: cells() without gaps.
void finish_sketch(const SketchShape& shape, std::span<const float> cells, std::span<float> ret_rows);
/// And back: rows of row_room() each whose room repeats their beginning.
void spread_sketch(const SketchShape& shape, std::span<const float> rows, std::span<float> ret_cells);
/// Estimates of elements [first, first + ret_values.size()), from cells of spread_sketch.
void estimate_sketch(const SketchShape& shape, const SketchDraws& draws, const SketchKernels& kernels,
                     ElementCount first, std::span<float> cells, std::span<float> ret_values);

template <typename Visit>
void SketchDraws::visit_blocks(const SketchKernels& kernels, float* cells, ElementCount first, std::size_t count,
                               Visit visit) const {
    std::array<std::array<std::uint32_t, kSketchPieceElements / 32>, kMostSketchRows> signs;
    SketchRun run;
    for (std::size_t piece = 0; piece < count; piece += kSketchPieceElements) {
        for (std::uint32_t row = 0; row < shape_.rows; ++row)
            kernels.draw_signs(signs_[row], (first + piece) / kSketchPieceElements, signs[row].data());
        const std::size_t end = piece + kSketchPieceElements < count ? piece + kSketchPieceElements : count;
        for (std::size_t at = piece; at < end; at += shape_.block) {
            for (std::uint32_t row = 0; row < shape_.rows; ++row) {
                run.signs[row] = signs[row].data() + (at - piece) / 32;
                run.cells[row] = cells + row * shape_.row_room() + offset(row, (first + at) / shape_.block);
            }
            visit(at, static_cast<std::uint32_t>(end - at < shape_.block ? end - at : shape_.block), run);
        }
    }
}

namespace stages {

struct Sketch {
    static const WholeStage kStage;
};

}  // namespace stages

}  // namespace gradsieve::codec

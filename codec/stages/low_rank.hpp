// lowrank: a tensor as a matrix M of `rows` x `columns`, sent as two factors of `rank` columns each. P, the mean over
// nodes of M Q, is made orthonormal on every node; with Q' = the mean of M^T P the result is P Q'^T, which is
// P P^T mean(M): what the span of P holds of the mean matrix. A node keeps M - P (M^T P)^T of its own. Q' is the next
// step's Q, so that P turns towards the largest singular vectors step by step (a subspace iteration). Source: Vogels,
// Karimireddy, Jaggi 2019, PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization, NeurIPS,
// algorithms 1 and 2. What each function gives depends on its arguments alone, to the last bit. Any thread.
#pragma once

#include "base/id.hpp"
#include "codec/pipeline.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace gradsieve::codec {

struct WholeStage;

/// Element i of the tensor stands in row i / columns, column i % columns. What the last row lacks is zero, and belongs
/// to no element.
struct MatrixShape {
    ElementCount elements = 0;
    ElementCount rows = 0;
    ElementCount columns = 0;
    std::uint32_t rank = 1;
    [[nodiscard]] ElementCount left_elements() const noexcept { return rows * rank; }
    [[nodiscard]] ElementCount right_elements() const noexcept { return columns * rank; }
    /// Elements that a row of the tensor has.
    [[nodiscard]] std::uint32_t row_elements(ElementCount row) const noexcept;
};

/// As the pipeline says, with at most as many columns as there are elements. Without columns in it the matrix is nearly
/// square: ceil(sqrt(elements)) columns.
[[nodiscard]] MatrixShape matrix_shape(const Pipeline& pipeline, ElementCount elements) noexcept;

/// A factor is worth it where both together have less than half of the tensor's elements.
[[nodiscard]] bool is_worth_factoring(const MatrixShape& shape) noexcept;

/// What a tensor of that shape is sent by: columns are its extents behind the first, multiplied, where the pipeline
/// does not say; and `all | f32` with the same front where that is no matrix (one extent) or factors are not worth it.
/// Pipelines without lowrank are returned as they are. Same result on every node.
[[nodiscard]] Pipeline settle_low_rank(const Pipeline& pipeline, std::span<const std::uint64_t> shape);

/// Makes the `rank` columns of a matrix of `rows` (row by row) orthonormal, in order, by Gram-Schmidt in fp64, twice. A
/// column of which less than 2^-20 is left by those before it becomes zero, and so does one that is zero.
void orthonormalize(std::span<const float> matrix, std::uint32_t rank, std::span<float> ret_matrix,
                    std::vector<double>& scratch);

/// Q of a step: each of the `rank` rows of `right` (the transposed Q' of the step before) over its norm; a row that is
/// zero is drawn from the seed (EncodeRequest::selection_seed), tensor and step, uniformly from [-1, 1), first.
void prepare_factors(std::span<const float> right, std::uint32_t rank, std::uint64_t seed, TensorId tensor, Step step,
                     std::span<float> ret_factors);

namespace stages {

struct LowRank {
    static const WholeStage kStage;
};

}  // namespace stages

}  // namespace gradsieve::codec

// The routes of lowrank: each phase reads r row by row, as the pass leaves it.
#include "codec/dense_coder.hpp"
#include "codec/low_rank_kernels.hpp"
#include "codec/phase_memory.hpp"
#include "codec/tensor_encoder.hpp"

#include <algorithm>
#include <cstring>

namespace gradsieve::codec {
namespace {

/// Between the pass and the look at it, so many stay in the second-level cache.
constexpr std::size_t kMatrixSpanElements = std::size_t{1} << 16U;
static_assert(kChunkElements % kMatrixSpanElements == 0);
constexpr ElementCount kRowsAtOnce = 1024;

}  // namespace

void append_numbers(std::span<const float> numbers, const PayloadPool& pool, EncodeResult& inout_result) {
    for (std::size_t first = 0; first < numbers.size(); first += kChunkElements) {
        const auto part = numbers.subspan(first, std::min<std::size_t>(kChunkElements, numbers.size() - first));
        DensePayload payload(Quantizer{}, part.size(), pool);
        std::memcpy(payload.values(), part.data(), part.size_bytes());
        inout_result.chunks.push_back({static_cast<std::uint32_t>(first / kChunkElements), payload.take()});
        inout_result.kept_elements += part.size();
    }
}

EncodeResult TensorEncoder::run_left(LowRankMemory& inout_memory) {
    GRADSIEVE_CHECK(pass_ != nullptr);
    const MatrixShape& shape = inout_memory.shape;
    if (request_.elements == 0) return std::move(result_);
    clip_samples();
    prepare_factors({request_.in.factor, shape.right_elements()}, shape.rank, request_.selection_seed, request_.tensor,
                    request_.step, inout_memory.factors);
    const auto& kernels = *low_rank_kernels_of(form_);
    ElementCount row = 0;
    for (ElementCount first = 0; first < request_.elements; first += kMatrixSpanElements) {
        const std::size_t elements = std::min<ElementCount>(kMatrixSpanElements, request_.elements - first);
        DenseOutcome outcome;
        if (!run_pass(span_at(first, elements), outcome)) return std::move(result_);
        for (; row < shape.rows && row * shape.columns + shape.row_elements(row) <= first + elements; ++row)
            kernels.project(request_.out.residual + row * shape.columns, shape.row_elements(row),
                            inout_memory.factors.data(), shape.columns, shape.rank,
                            inout_memory.left.data() + row * shape.rank);
    }
    finish_dense_pass(plan_);
    append_numbers(inout_memory.left, scratch_.code.payloads, result_);
    return std::move(result_);
}

EncodeResult TensorEncoder::run_right(LowRankMemory& inout_memory) {
    const MatrixShape& shape = inout_memory.shape;
    if (request_.elements == 0) return std::move(result_);
    const auto& kernels = *low_rank_kernels_of(form_);
    float* residual = request_.out.residual;
    std::ranges::fill(inout_memory.right, 0.0F);
    for (ElementCount row = 0; row < shape.rows;) {
        const bool is_last = row + 1 == shape.rows;  // it may be short
        const ElementCount rows = is_last ? 1 : std::min(kRowsAtOnce, shape.rows - 1 - row);
        kernels.add_outer(residual + row * shape.columns, static_cast<std::uint32_t>(rows), shape.row_elements(row),
                          inout_memory.left.data() + row * shape.rank, shape.rank, inout_memory.right.data(),
                          shape.columns);
        row += rows;
    }
    for (ElementCount row = 0; row < shape.rows; ++row)
        kernels.subtract(inout_memory.left.data() + row * shape.rank, shape.rank, inout_memory.right.data(),
                         shape.columns, shape.row_elements(row), residual + row * shape.columns);
    if (has_low_pass(pipeline_)) filter_residual();
    append_numbers(inout_memory.right, scratch_.code.payloads, result_);
    return std::move(result_);
}

}  // namespace gradsieve::codec

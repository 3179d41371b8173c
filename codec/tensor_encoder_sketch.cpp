// The routes of sketch: the first phase reads r as the pass leaves it, the second what all nodes chose of it.
#include "codec/phase_memory.hpp"
#include "codec/tensor_encoder.hpp"

#include <algorithm>

namespace gradsieve::codec {
namespace {

/// Between the pass and the look at it, so many stay in the second-level cache beside a sketch's lines.
constexpr std::size_t kSketchSpanElements = std::size_t{1} << 14U;
static_assert(kChunkElements % kSketchSpanElements == 0 && kSketchSpanElements % kSketchPieceElements == 0);
/// Elements chosen lie far apart, so each costs a trip to memory: that many are under way at a time.
constexpr std::size_t kPrefetchElements = 24;

}  // namespace

EncodeResult TensorEncoder::run_sketch(SketchMemory& inout_memory) {
    GRADSIEVE_CHECK(pass_ != nullptr);
    const SketchShape& shape = inout_memory.shape;
    if (request_.elements == 0) return std::move(result_);
    clip_samples();
    const SketchDraws draws(shape, request_.selection_seed, request_.tensor, request_.step);
    const SketchKernels& kernels = *sketch_kernels_of(form_);
    std::ranges::fill(inout_memory.cells, 0.0F);
    for (ElementCount first = 0; first < request_.elements; first += kSketchSpanElements) {
        const std::size_t elements = std::min<ElementCount>(kSketchSpanElements, request_.elements - first);
        DenseOutcome outcome;
        if (!run_pass(span_at(first, elements), outcome)) return std::move(result_);
        insert_sketch(shape, draws, kernels, first, {request_.out.residual + first, elements}, inout_memory.cells);
    }
    finish_dense_pass(plan_);
    finish_sketch(shape, inout_memory.cells, inout_memory.rows);
    if (std::ranges::any_of(inout_memory.rows, [](float cell) { return cell != 0.0F; }))
        append_numbers(inout_memory.rows, scratch_.code.payloads, result_);
    return std::move(result_);
}

EncodeResult TensorEncoder::run_chosen(SketchMemory& inout_memory, bool sends) {
    if (request_.elements == 0) return std::move(result_);
    if (sends) {
        inout_memory.close_choice();
        float* residual = request_.out.residual;
        float* momentum = is_momentum_masked(pipeline_) ? request_.out.momentum : nullptr;
        const auto& chosen = inout_memory.chosen;
        for (std::size_t at = 0; at < chosen.size(); ++at) {
            if (at + kPrefetchElements < chosen.size())
                __builtin_prefetch(residual + chosen[at + kPrefetchElements], 1);
            inout_memory.values[at] = residual[chosen[at]];
            residual[chosen[at]] = 0.0F;
            if (momentum != nullptr) momentum[chosen[at]] = 0.0F;
        }
        append_numbers(inout_memory.values, scratch_.code.payloads, result_);
    }
    if (has_low_pass(pipeline_)) filter_residual();
    return std::move(result_);
}

}  // namespace gradsieve::codec

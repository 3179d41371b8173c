// What all nodes' sketches decode to: which elements are sent, and their mean.
#include "codec/payload_kernels.hpp"
#include "codec/phase_memory.hpp"
#include "codec/tensor_encoder.hpp"

#include <numeric>

namespace gradsieve::codec {

SketchMemory::SketchMemory(const SketchShape& sketch)
    : shape(sketch),
      cells(sketch.rows * sketch.row_room()),
      rows(sketch.cells()),
      row_mean(sketch.cells()),
      chosen(sketch.kept),
      values(sketch.kept),
      value_mean(sketch.kept),
      row_average(0, row_mean.data(), row_mean.size()),
      value_average(0, value_mean.data(), value_mean.size()),
      estimates(std::min<ElementCount>(sketch.elements, kListSpanElements)) {}

ByteCount SketchMemory::bytes(const SketchShape& sketch) noexcept {
    return sizeof(float) * (sketch.rows * sketch.row_room() + 2 * sketch.cells()) +
           (sizeof(ElementCount) + 2 * sizeof(float)) * sketch.kept + top_k_list_bytes(sketch.kept) +
           sizeof(float) * kListSpanElements;
}

Result<bool> SketchMemory::decode_first(const PhaseStep& at, std::span<const Contribution> contributions) {
    is_choice_open = false;
    GRADSIEVE_ASSIGN(const auto decoded, row_average.decode_average(at.step, contributions));
    if (decoded.touched_elements == 0) {  // all estimates are zero
        std::iota(chosen.begin(), chosen.end(), ElementCount{0});
        return false;
    }
    draws = SketchDraws(shape, at.selection_seed, at.tensor, at.step);
    is_choice_open = true;
    if (!leaves_choice) close_choice();
    return true;
}

void SketchMemory::close_choice() {
    if (!is_choice_open) return;
    is_choice_open = false;
    spread_sketch(shape, row_mean, cells);
    choose();
}

/// Estimates of at least that magnitude, or of what the collector makes of it meanwhile.
void SketchMemory::list_estimates(std::uint32_t floor) {
    const SketchKernels& kernels = sketch_kernels();
    const PayloadKernels& payload = payload_kernels();
    top_k.begin(list, shape.kept, floor);
    span_cells.ensure(kListSpanElements + kIndexSlack);
    for (ElementCount first = 0; first < shape.elements; first += kListSpanElements) {
        const std::size_t count = std::min<ElementCount>(kListSpanElements, shape.elements - first);
        if (first % kChunkElements == 0) list.begin_chunk(static_cast<std::uint32_t>(first / kChunkElements));
        top_k.raise_floor();
        estimate_sketch(shape, draws, kernels, first, cells, {estimates.data(), count});
        const auto first_index = static_cast<std::uint32_t>(first % kChunkElements);
        std::uint32_t* indices = span_cells.indices.data();
        const std::uint32_t listed = payload.list_above(estimates.data(), static_cast<std::uint32_t>(count),
                                                        top_k.floor(), first_index, indices);
        for (std::uint32_t cell = 0; cell < listed; ++cell)
            span_cells.values.data()[cell] = estimates[indices[cell] - first_index];
        list.append(span_cells, listed, false);
    }
}

/// The k largest estimates, equal ones by ascending index; those of zero are in no list.
void SketchMemory::choose() {
    list_estimates(hint.is_known() ? hint.floor() : 1);
    if (!top_k.has_enough()) list_estimates(1);
    hint = hint.next(top_k.finish());
    chosen.clear();
    ElementCount next_zero = 0;
    std::size_t zeros = shape.kept - list.count();
    const auto add_zeros_before = [&](ElementCount end) {
        for (; zeros > 0 && next_zero < end; --zeros) chosen.push_back(next_zero++);
        next_zero = end + 1;
    };
    for (std::size_t position = 0; position < list.chunk_count(); ++position)
        for (const std::uint32_t index : list.indices(position)) {
            const ElementCount element = list.chunk_index(position) * kChunkElements + index;
            add_zeros_before(element);
            chosen.push_back(element);
        }
    add_zeros_before(shape.elements);
}

Result<bool> SketchMemory::average_values(Step step, std::span<const Contribution> contributions) {
    GRADSIEVE_ASSIGN(const auto decoded, value_average.decode_average(step, contributions));
    return decoded.touched_elements > 0;
}

Result<DecodeResult> SketchMemory::decode_last(Step step, std::span<const Contribution> contributions,
                                               ResultTensor& inout_result) {
    close_choice();
    GRADSIEVE_ASSIGN(const bool is_sent, average_values(step, contributions));
    if (!is_sent) return inout_result.decode_average(step, {});
    return inout_result.write_list(step, chosen, value_mean);
}

}  // namespace gradsieve::codec

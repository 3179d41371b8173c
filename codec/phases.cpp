#include "codec/phases.hpp"

#include "codec/encoder_check.hpp"
#include "codec/phase_memory.hpp"
#include "codec/stages/accumulate.hpp"
#include "codec/tensor_encoder.hpp"

#include <algorithm>

namespace gradsieve::codec {
namespace {

Status invalid(std::string text) { return {StatusCode::kInvalidArgument, std::move(text)}; }

}  // namespace

Status check_phase(unsigned phase, const EncodeRequest& request, const PhaseMemory::Impl& memory) {
    GRADSIEVE_TRY(check_encode_request(request));
    if (!has_phases(*request.pipeline) || phase > 1)
        return invalid("phase " + std::to_string(phase) + " of '" + canonical_text(*request.pipeline, Knobs::kKeep) +
                       "': allowed are 0 and 1 of a codec with phases; call encode_tensor for others");
    if (memory.elements != request.elements)
        return invalid("memory of phases of " + std::to_string(memory.elements) + " elements for a tensor of " +
                       std::to_string(request.elements) + ": allowed is one made for it; make one");
    if (phase == 1 && (memory.stage != PhaseMemory::Impl::Stage::kAveraged || memory.step != request.step))
        return invalid("second phase of step " + std::to_string(request.step) +
                       ": allowed once this step's first phase is decoded; call decode_first_phase");
    return {};
}

void open_phase(unsigned phase, const EncodeRequest& request, PhaseMemory::Impl& inout_memory) {
    auto* low_rank = inout_memory.low_rank ? &*inout_memory.low_rank : nullptr;
    if (low_rank != nullptr) low_rank->factor_out = nullptr;
    if (phase == 0) {
        inout_memory.stage = PhaseMemory::Impl::Stage::kSampled;
        inout_memory.step = request.step;
        return;
    }
    if (low_rank == nullptr) return;
    if (request.elements > 0) std::copy_n(request.in.factor, low_rank->right.size(), request.out.factor);
    low_rank->factor_out = request.out.factor;
}

PhaseMemory::Impl::Impl(const Pipeline& pipeline, ElementCount element_count) : elements(element_count) {
    if (has_factor(pipeline))
        low_rank.emplace(matrix_shape(pipeline, elements));
    else
        sketch.emplace(sketch_shape(pipeline, elements));
}

PhaseMemory::PhaseMemory(const Pipeline& pipeline, ElementCount elements)
    : impl_(std::make_unique<Impl>(pipeline, elements)) {}
PhaseMemory::PhaseMemory(PhaseMemory&&) noexcept = default;
PhaseMemory& PhaseMemory::operator=(PhaseMemory&&) noexcept = default;
PhaseMemory::~PhaseMemory() = default;

ElementCount phase_elements(const Pipeline& pipeline, ElementCount elements, unsigned phase) noexcept {
    if (has_factor(pipeline)) {
        const auto shape = matrix_shape(pipeline, elements);
        return phase == 0 ? shape.left_elements() : shape.right_elements();
    }
    const auto shape = sketch_shape(pipeline, elements);
    return phase == 0 ? shape.cells() : shape.kept;
}

ByteCount phase_bytes(const Pipeline& pipeline, ElementCount elements) noexcept {
    return has_factor(pipeline) ? LowRankMemory::bytes(matrix_shape(pipeline, elements))
                                : SketchMemory::bytes(sketch_shape(pipeline, elements));
}

Result<EncodeResult> encode_phase_with(unsigned phase, const EncodeRequest& request, const EncodeOptions& options,
                                       PhaseMemory& inout_memory, EncodeWorkspace& workspace) {
    auto& memory = inout_memory.impl();
    GRADSIEVE_TRY(check_phase(phase, request, memory));
    if (!is_cpu_form_supported(options.form)) return parse_cpu_form(cpu_form_name(options.form)).error();
    const bool waits = is_waiting(*request.pipeline, request.step);
    auto& scratch = workspace.impl();
    open_phase(phase, request, memory);
    auto* low_rank = memory.low_rank ? &*memory.low_rank : nullptr;
    if (phase == 0) {
        if (waits) return encode_tensor_with(request, options, workspace);
        TensorEncoder encoder(request, options, scratch, scratch.candidates);
        return low_rank != nullptr ? encoder.run_left(*low_rank) : encoder.run_sketch(*memory.sketch);
    }
    if (waits) return EncodeResult{};
    TensorEncoder encoder(request, options, scratch, scratch.candidates);
    if (low_rank != nullptr) return encoder.run_right(*low_rank);
    return encoder.run_chosen(*memory.sketch, memory.sends);
}

Result<EncodeResult> encode_phase(unsigned phase, const EncodeRequest& request, PhaseMemory& inout_memory,
                                  EncodeWorkspace& workspace) {
    GRADSIEVE_ASSIGN(const CpuForm form, Result<CpuForm>(chosen_cpu_form()));
    return encode_phase_with(phase, request, {form, true, true}, inout_memory, workspace);
}

Status decode_first_phase(const PhaseStep& at, std::span<const Contribution> contributions, PhaseMemory& inout_memory) {
    auto& memory = inout_memory.impl();
    // A node whose own first phase failed decodes the others' all the same.
    if (memory.step != at.step && memory.low_rank) memory.low_rank->factor_out = nullptr;
    memory.step = at.step;
    memory.stage = PhaseMemory::Impl::Stage::kNone;
    GRADSIEVE_ASSIGN(memory.sends, memory.low_rank ? memory.low_rank->decode_first(at, contributions)
                                                   : memory.sketch->decode_first(at, contributions));
    memory.stage = PhaseMemory::Impl::Stage::kAveraged;
    return {};
}

Status close_phases(Step step, PhaseMemory::Impl& inout_memory) {
    if (inout_memory.stage != PhaseMemory::Impl::Stage::kAveraged || inout_memory.step != step)
        return invalid("last phase of step " + std::to_string(step) +
                       ": allowed once this step's first phase is decoded; call decode_first_phase");
    inout_memory.stage = PhaseMemory::Impl::Stage::kNone;
    return {};
}

Result<DecodeResult> decode_last_phase(Step step, std::span<const Contribution> contributions,
                                       PhaseMemory& inout_memory, ResultTensor& inout_result) {
    auto& memory = inout_memory.impl();
    GRADSIEVE_TRY(close_phases(step, memory));
    return memory.low_rank ? memory.low_rank->decode_last(step, contributions, inout_result)
                           : memory.sketch->decode_last(step, contributions, inout_result);
}

}  // namespace gradsieve::codec

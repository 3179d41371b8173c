#include "codec/phases.hpp"

#include "codec/accumulate.hpp"
#include "codec/encoder_check.hpp"
#include "codec/low_rank_kernels.hpp"
#include "codec/phase_memory.hpp"
#include "codec/tensor_encoder.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::codec {
namespace {

/// No honest mean is above: elements are cut off at kFactorLimit, and a factor of norm 1 adds up at most 2^30 of them
/// with a norm of 2^15. So that no sum of kMostRank products overflows.
constexpr float kMostOfMean = 0x1p116F;

Status invalid(std::string text) { return {StatusCode::kInvalidArgument, std::move(text)}; }

}  // namespace

Status check_phase(unsigned phase, const EncodeRequest& request, const PhaseMemory::Impl& memory) {
    GRADSIEVE_TRY(check_encode_request(request));
    if (!has_phases(*request.pipeline) || phase > 1)
        return invalid("phase " + std::to_string(phase) + " of '" + canonical_text(*request.pipeline, Knobs::kKeep) +
                       "': allowed are 0 and 1 of a codec with phases; call encode_tensor for others");
    if (memory.shape.elements != request.elements)
        return invalid("memory of phases of " + std::to_string(memory.shape.elements) + " elements for a tensor of " +
                       std::to_string(request.elements) + ": allowed is one made for it; make one");
    if (phase == 1 && (memory.stage != PhaseMemory::Impl::Stage::kAveraged || memory.step != request.step))
        return invalid("second phase of step " + std::to_string(request.step) +
                       ": allowed once this step's first phase is decoded; call decode_first_phase");
    return {};
}

void open_phase(unsigned phase, const EncodeRequest& request, PhaseMemory::Impl& inout_memory) {
    inout_memory.factor_out = nullptr;
    if (phase == 0) {
        inout_memory.stage = PhaseMemory::Impl::Stage::kSampled;
        inout_memory.step = request.step;
        return;
    }
    if (request.elements > 0) std::copy_n(request.in.factor, inout_memory.right.size(), request.out.factor);
    inout_memory.factor_out = request.out.factor;
}

PhaseMemory::Impl::Impl(const MatrixShape& matrix)
    : shape(matrix),
      factors(matrix.right_elements()),
      left(matrix.left_elements()),
      right(matrix.right_elements()),
      left_mean(matrix.left_elements()),
      right_mean(matrix.right_elements()),
      left_average(0, left_mean.data(), left_mean.size()),
      right_average(0, right_mean.data(), right_mean.size()) {}

PhaseMemory::PhaseMemory(const Pipeline& pipeline, ElementCount elements)
    : impl_(std::make_unique<Impl>(matrix_shape(pipeline, elements))) {}
PhaseMemory::PhaseMemory(PhaseMemory&&) noexcept = default;
PhaseMemory& PhaseMemory::operator=(PhaseMemory&&) noexcept = default;
PhaseMemory::~PhaseMemory() = default;

ElementCount phase_elements(const Pipeline& pipeline, ElementCount elements, unsigned phase) noexcept {
    const auto shape = matrix_shape(pipeline, elements);
    return phase == 0 ? shape.left_elements() : shape.right_elements();
}

ByteCount phase_bytes(const Pipeline& pipeline, ElementCount elements) noexcept {
    const auto shape = matrix_shape(pipeline, elements);
    return (2 * sizeof(float) + sizeof(double)) * shape.left_elements() + 3 * sizeof(float) * shape.right_elements();
}

Result<EncodeResult> encode_phase_with(unsigned phase, const EncodeRequest& request, const EncodeOptions& options,
                                       PhaseMemory& inout_memory, EncodeWorkspace& workspace) {
    auto& memory = inout_memory.impl();
    GRADSIEVE_TRY(check_phase(phase, request, memory));
    if (!is_cpu_form_supported(options.form)) return parse_cpu_form(cpu_form_name(options.form)).error();
    const bool waits = is_waiting(*request.pipeline, request.step);
    auto& scratch = workspace.impl();
    open_phase(phase, request, memory);
    if (phase == 0) {
        if (waits) return encode_tensor_with(request, options, workspace);
        return TensorEncoder(request, options, scratch, scratch.candidates).run_left(memory);
    }
    if (waits) return EncodeResult{};
    return TensorEncoder(request, options, scratch, scratch.candidates).run_right(memory);
}

Result<EncodeResult> encode_phase(unsigned phase, const EncodeRequest& request, PhaseMemory& inout_memory,
                                  EncodeWorkspace& workspace) {
    GRADSIEVE_ASSIGN(const CpuForm form, Result<CpuForm>(chosen_cpu_form()));
    return encode_phase_with(phase, request, {form, true, true}, inout_memory, workspace);
}

Status decode_first_phase(Step step, std::span<const Contribution> contributions, PhaseMemory& inout_memory) {
    auto& memory = inout_memory.impl();
    // A node whose own first phase failed decodes the others' all the same.
    if (memory.step != step) memory.factor_out = nullptr;
    memory.step = step;
    memory.stage = PhaseMemory::Impl::Stage::kNone;
    GRADSIEVE_ASSIGN(const auto decoded, memory.left_average.decode_average(step, contributions));
    memory.sends = decoded.touched_elements > 0;
    orthonormalize(memory.left_mean, memory.shape.rank, memory.left, memory.columns);
    memory.stage = PhaseMemory::Impl::Stage::kAveraged;
    return {};
}

Result<bool> average_right(Step step, std::span<const Contribution> contributions, PhaseMemory::Impl& inout_memory) {
    auto& memory = inout_memory;
    if (memory.stage != PhaseMemory::Impl::Stage::kAveraged || memory.step != step)
        return invalid("last phase of step " + std::to_string(step) +
                       ": allowed once this step's first phase is decoded; call decode_first_phase");
    memory.stage = PhaseMemory::Impl::Stage::kNone;
    GRADSIEVE_ASSIGN(const auto decoded, memory.right_average.decode_average(step, contributions));
    if (decoded.touched_elements == 0) return false;
    for (const float value : memory.right_mean)
        if (std::fabs(value) > kMostOfMean)
            return Status(StatusCode::kCorrupt, "mean of a factor: " + std::to_string(value) +
                                                    ": allowed are magnitudes up to 2^116; install the same release "
                                                    "on all nodes");
    return true;
}

void keep_factor(PhaseMemory::Impl& inout_memory) {
    if (inout_memory.factor_out != nullptr) std::ranges::copy(inout_memory.right_mean, inout_memory.factor_out);
}

Result<DecodeResult> decode_last_phase(Step step, std::span<const Contribution> contributions,
                                       PhaseMemory& inout_memory, ResultTensor& inout_result) {
    auto& memory = inout_memory.impl();
    GRADSIEVE_ASSIGN(const bool is_sent, average_right(step, contributions, memory));
    if (!is_sent) return inout_result.decode_average(step, {});
    const auto& shape = memory.shape;
    const auto& kernels = low_rank_kernels();
    const auto result = inout_result.write_all(step, [&](ElementCount first, std::span<float> ret_values) {
        for (std::size_t at = 0; at < ret_values.size();) {
            const ElementCount row = (first + at) / shape.columns;
            const ElementCount column = (first + at) % shape.columns;
            const auto count =
                static_cast<std::uint32_t>(std::min<ElementCount>(shape.columns - column, ret_values.size() - at));
            kernels.expand(memory.left.data() + row * shape.rank, shape.rank, memory.right_mean.data() + column,
                           shape.columns, count, ret_values.data() + at);
            at += count;
        }
    });
    keep_factor(memory);
    return result;
}

}  // namespace gradsieve::codec

// Steps of a tensor that have two phases, of codecs of which has_phases holds: every node sends a payload of the first
// phase, all decode those, and what they decode to decides what is sent in the second, whose payloads give the result.
//
//     encode_phase(0) -> payloads of all nodes -> decode_first_phase -> encode_phase(1) -> payloads ->
//     decode_last_phase
//
// Payloads of a phase are those of a tensor of phase_elements elements with the codec `all | f32`. Any thread, one at a
// time for each tensor.
#pragma once

#include "codec/decoder.hpp"
#include "codec/encoder.hpp"

#include <memory>
#include <span>

namespace gradsieve::codec {

/// Rounds of payloads of a step: 1 or 2.
[[nodiscard]] constexpr unsigned phase_count(const Pipeline& pipeline) noexcept { return has_phases(pipeline) ? 2 : 1; }
/// Elements of what the payloads of a phase stand for: lowrank's factors, sketch's cells and values.
[[nodiscard]] ElementCount phase_elements(const Pipeline& pipeline, ElementCount elements, unsigned phase) noexcept;

/// Which step of which tensor: what all nodes draw the same random numbers from.
struct PhaseStep {
    Step step = 0;
    TensorId tensor = 0;
    std::uint64_t selection_seed = 0;  ///< EncodeRequest::selection_seed
};

/// What the phases of a tensor's steps leave for one another. Made once and used again at every step. A step that ends
/// between its phases needs no ending: the next first phase begins anew.
class PhaseMemory {
public:
    /// has_phases(pipeline).
    PhaseMemory(const Pipeline& pipeline, ElementCount elements);
    PhaseMemory(PhaseMemory&&) noexcept;
    PhaseMemory& operator=(PhaseMemory&&) noexcept;
    ~PhaseMemory();
    struct Impl;
    [[nodiscard]] Impl& impl() noexcept { return *impl_; }

private:
    std::unique_ptr<Impl> impl_;
};
/// What one holds.
[[nodiscard]] ByteCount phase_bytes(const Pipeline& pipeline, ElementCount elements) noexcept;

/// The request is as for encode_tensor, and the same in both phases of a step; samples are read in the first alone, and
/// `out` is complete after decode_last_phase. A step of accumulate that only adds up has no chunks in either. Errors:
/// kInvalidArgument, as encode_tensor, or the pipeline has no phases, or the second phase comes without a first one.
[[nodiscard]] Result<EncodeResult> encode_phase(unsigned phase, const EncodeRequest& request, PhaseMemory& inout_memory,
                                                EncodeWorkspace& workspace);

/// All nodes' payloads of the first phase, in node order. Errors: kCorrupt, as ResultTensor::decode_average.
[[nodiscard]] Status decode_first_phase(const PhaseStep& at, std::span<const Contribution> contributions,
                                        PhaseMemory& inout_memory);
/// All nodes' payloads of the second phase become the result, and complete `out` of this step's encode_phase, if there
/// was one. Errors: as above; kInvalidArgument (no first phase was decoded).
[[nodiscard]] Result<DecodeResult> decode_last_phase(Step step, std::span<const Contribution> contributions,
                                                     PhaseMemory& inout_memory, ResultTensor& inout_result);

}  // namespace gradsieve::codec

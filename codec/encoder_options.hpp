// Encoding with the choices that encode_tensor makes by itself: for tests, oracles and benchmarks.
#pragma once

#include "codec/cpu_form.hpp"
#include "codec/encoder.hpp"
#include "codec/model_scope.hpp"
#include "codec/phases.hpp"

namespace gradsieve::codec {

struct EncodeOptions {
    CpuForm form = CpuForm::kScalar;
    /// Whether few samples share their variance estimate over 32 elements; the oracles want each element's own.
    bool may_pool_variance = true;
    /// Non-temporal stores where the outputs allow them and the tensor is large; off: never. Same bits.
    bool may_stream = true;
};

/// As encode_tensor. Further error: kInvalidArgument (this CPU does not have the form).
[[nodiscard]] Result<EncodeResult> encode_tensor_with(const EncodeRequest& request, const EncodeOptions& options,
                                                      EncodeWorkspace& workspace);
/// As encode_member. Further error: kInvalidArgument (this CPU does not have the form).
[[nodiscard]] Result<EncodeResult> encode_member_with(ScopePhase phase, const ScopeTerms& terms,
                                                      const EncodeRequest& request, const EncodeOptions& options,
                                                      ScopeMember& inout_member, EncodeWorkspace& workspace);
/// As encode_phase. Further error: kInvalidArgument (this CPU does not have the form).
[[nodiscard]] Result<EncodeResult> encode_phase_with(unsigned phase, const EncodeRequest& request,
                                                     const EncodeOptions& options, PhaseMemory& inout_memory,
                                                     EncodeWorkspace& workspace);

}  // namespace gradsieve::codec

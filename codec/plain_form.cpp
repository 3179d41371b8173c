#include "codec/plain_form.hpp"

namespace gradsieve::codec {
namespace {

bool is_plain(const Pipeline& pipeline) noexcept {
    const QuantizerKind kind = pipeline.quantizer.kind;
    const bool has_whole_numbers =
        kind == QuantizerKind::kF32 || kind == QuantizerKind::kF16 || kind == QuantizerKind::kBf16;
    return sends_all(pipeline.selector) && has_whole_numbers;
}

}  // namespace

std::string_view plain_refusal(const Pipeline& written) noexcept {
    const Front& front = written.front;
    if (has_phases(written)) return "lowrank and sketch have steps of two rounds on all nodes";
    if (has_model_scope(written)) return "scope=model selects from all tensors together";
    if (has_delta(written)) return "delta sends differences to what was sent before";
    if (has_reuse(written)) return "similarity(skip=..) keeps what was sent";
    if (has_momentum(written)) return "momentum keeps sums that plain steps would not go on with";
    if (is_compensated(front)) return "compensate changes what stays in the residual";
    if (front.period > 1) return "accumulate sends some steps only";
    if (has_rotation(written)) return "rotations are averaged with rotations only";
    if (combine_of(written.quantizer.kind) == Combine::kMajority) return "votes are counted, not averaged";
    if (has_variance(written)) return "variances are kept, which plain steps would not go on with";
    if (is_plain(written)) return "it is plain already";
    return {};
}

Pipeline plain_pipeline(const Pipeline& written) noexcept {
    Pipeline plain;
    plain.quantizer.kind = has_residual(written) ? QuantizerKind::kBf16 : QuantizerKind::kF32;
    plain.measures_similarity = written.measures_similarity;
    return plain;
}

std::string_view plain_name(const Pipeline& written) noexcept { return has_residual(written) ? "bf16" : "f32"; }
unsigned plain_bits(const Pipeline& written) noexcept { return has_residual(written) ? 16 : 32; }

}  // namespace gradsieve::codec

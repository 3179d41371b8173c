#include "codec/plain_form.hpp"

#include "codec/stages/quantizer_list.hpp"

namespace gradsieve::codec {
namespace {

bool is_plain(const Pipeline& pipeline) noexcept {
    return sends_all(pipeline.selector) && facts_of(pipeline.quantizer.kind).number_bits > 0;
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

Pipeline plain_pipeline(const Pipeline& written) {
    static const auto kBf16 = parse_pipeline("all | bf16");
    static const auto kF32 = parse_pipeline("all | f32");
    Pipeline plain = has_residual(written) ? kBf16.value() : kF32.value();
    plain.measures_similarity = written.measures_similarity;
    return plain;
}

std::string_view plain_name(const Pipeline& written) { return facts_of(plain_pipeline(written).quantizer.kind).name; }
unsigned plain_bits(const Pipeline& written) { return facts_of(plain_pipeline(written).quantizer.kind).number_bits; }

}  // namespace gradsieve::codec

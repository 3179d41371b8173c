// A codec for a whole model as text: a pipeline, and rules that give tensors of some names or sizes another one. The
// first rule that fits a tensor decides. Parsed at configuration time and at job start. Any thread; plain values.
#pragma once

#include "codec/pipeline.hpp"

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::codec {

/// Every condition has to hold.
struct TensorRule {
    std::string name_pattern;  ///< of the shell: `*`, `?`, `[abc]`; empty: any name
    ElementCount least_elements = 0;
    ElementCount most_elements = std::numeric_limits<ElementCount>::max();
    Pipeline pipeline;
    bool operator==(const TensorRule&) const = default;
};
struct RuledCodec {
    Pipeline main;  ///< of tensors that no rule fits
    std::vector<TensorRule> rules;
    bool operator==(const RuledCodec&) const = default;
};

/// Parses `PIPELINE`, or `PIPELINE; CONDITIONS: PIPELINE; ...` where conditions are joined by `&` and each is a pattern
/// of names or one of `elements < N`, `elements <= N`, `elements > N`, `elements >= N`; e.g.
/// "topk(0.01) | pow2; *.bias: all | f32; *embed* & elements >= 1000000: topk(0.001) | pow2". At most 64 rules.
/// Errors: kInvalidArgument naming rule, value seen and what is allowed.
[[nodiscard]] Result<RuledCodec> parse_codec(std::string_view text);
/// One spelling per meaning, every parameter written out; parse_codec(canonical_codec_text(c)) == c.
[[nodiscard]] std::string canonical_codec_text(const RuledCodec& codec);

/// The pipeline of the first rule that fits, or null.
[[nodiscard]] const Pipeline* ruled_pipeline(const RuledCodec& codec, const std::string& name, ElementCount elements);

}  // namespace gradsieve::codec

#include "codec/stages/entropy.hpp"

#include "codec/stages/quantizer_list.hpp"
#include "codec/stages/stage_list.hpp"

namespace gradsieve::codec::stages {

const StageRow Entropy::kRow =
    StageRow{"entropy",
             "entropy coder",
             "",
             "chunk",
             "-",
             "value codes of 2 to 8 bits in a Huffman code of the chunk's own, without loss, where that is shorter; "
             "after pow2, natural, dither, ternary, exponential_dither, rounding, minmax or integer",
             "Huffman 1952, A Method for the Construction of Minimum-Redundancy Codes; canonical codes of Schwartz, "
             "Kallick 1964",
             "gather",
             "CPU; with CUDA, by the host"};

/// Codes of one bit are as short as codes get, and fp numbers are not codes. How long those of integer are, each chunk
/// says; where they are longer than 8 bits they stay plain.
Status Entropy::check(const Pipeline& pipeline) {
    const std::uint32_t bits = code_bits(pipeline.quantizer);
    if (!pipeline.has_entropy || (bits >= 2 && bits <= 8) || facts_of(pipeline.quantizer.kind).has_step) return {};
    return bad_text("quantizer before entropy", name_of(pipeline.quantizer),
                    "one with codes of 2 to 8 bits, as pow2, natural, dither, ternary, exponential_dither, rounding, "
                    "minmax and integer",
                    "leave entropy out, or write e.g. natural | entropy");
}

}  // namespace gradsieve::codec::stages

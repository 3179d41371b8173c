// Inputs that the payload suites share: pipelines by quantizer and coder, sizes, and data made from integers alone, so
// that every host and release has the same bits.
#pragma once

#include "codec/chunk_coder.hpp"
#include "codec/random_mask.hpp"

#include <string>
#include <vector>

namespace gradsieve::test {

enum class Shape { kGaussian, kHeavyTailed, kConstant, kZeros, kTiny, kOneHot, kAlternating };
std::string shape_name(Shape shape);
const std::vector<Shape>& all_shapes();

/// `count` values of a shape; the same for the same arguments, everywhere.
std::vector<float> make_values(Shape shape, std::size_t count, std::uint64_t seed);

/// Ascending indices below `elements`, each kept with probability parts_per_million / 1e6.
std::vector<std::uint32_t> make_indices(std::size_t elements, std::uint32_t parts_per_million, std::uint64_t seed);

/// One quantizer with one coder, dense or as a list.
struct PipelineCase {
    std::string text;
    codec::Pipeline pipeline;
    bool is_dense = false;
};
/// Every quantizer x coder that a configuration can name, after `all` and after a sparse selector.
const std::vector<PipelineCase>& all_pipeline_cases();

/// The rule of `code` for a random selector.
codec::SelectionRule rule_of(const codec::Pipeline& pipeline, std::size_t elements);
/// The random numbers of `code`, and its rotation.
void set_random(const codec::Pipeline& pipeline, codec::ChunkSelection& inout_selection);

struct Coded {
    Bytes payload;
    std::vector<float> decoded;  ///< as long as the selection's values; poisoned before the call
};
/// Codes one chunk. A list of `indices` with `values`, or all of `values` if `is_dense`.
/// After a random selector, indices are those that its rule stands for.
Coded code(const codec::Pipeline& pipeline, std::size_t elements, bool is_dense,
           const std::vector<std::uint32_t>& indices, const std::vector<float>& values);

struct CaseData {
    std::vector<std::uint32_t> indices;
    std::vector<float> values;
};
/// Input of a case: all of a shape, a random list with at least one element, or what a key stands for.
CaseData make_case_data(const PipelineCase& pipeline_case, Shape shape, std::size_t elements, std::uint64_t seed);

std::vector<std::uint8_t> octets(const Bytes& bytes);
Bytes bytes_of(ByteView view);
std::uint64_t random_word(std::uint64_t& inout_state);
/// Finite numbers of every exponent and sign, from a seed that follows from their count.
std::vector<float> all_magnitudes(std::uint32_t count);
std::uint32_t float_bits(float value);

}  // namespace gradsieve::test

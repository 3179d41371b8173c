// The encoder once more, slowly: one plain function per formula, element by element, no cleverness and no code shared
// with the fast forms except the chunk coder behind it. What it says is what the fast forms are judged by.
#pragma once

#include "codec/chunk_coder.hpp"
#include "codec/encoder.hpp"

#include <string>
#include <vector>

namespace gradsieve::codec::reference {

struct State {
    std::vector<float> residual;
    std::vector<float> variance;
    std::vector<float> momentum = {};
};

/// The same step as an EncodeRequest, in values.
struct Input {
    Pipeline pipeline;
    ElementCount elements = 0;
    std::vector<std::vector<float>> samples;
    std::vector<float> weights;
    std::vector<std::vector<float>> second_moments;
    std::uint64_t batch_samples = 0;
    float rescale = 1.0F;
    bool may_pool = true;
    TensorId tensor = tensor_id("tensor");
    Step step = 1;
    std::uint64_t random_seed = 0;
    std::uint64_t selection_seed = 0;
    std::uint32_t node_count = 1;
};
struct Output {
    State state;
    std::vector<ChunkPayload> chunks;
    ElementCount kept_elements = 0;
    VarianceSource variance_source = VarianceSource::kNone;
    std::optional<NonFinite> non_finite;
    std::vector<ElementCount> selected;  ///< by the selector, sent or not; ascending
    std::vector<float> decoded;          ///< what receivers decode, one per element; 0 where nothing was sent
};

[[nodiscard]] float mean_of_samples(const Input& input, ElementCount element);
[[nodiscard]] VarianceSource variance_source(const Input& input);
/// u of an element after the step, and what is added to r.
[[nodiscard]] float momentum_after(const Input& input, const State& before, ElementCount element);
[[nodiscard]] float handed_in(const Input& input, const State& before, ElementCount element);
/// What is kept of what was not sent.
[[nodiscard]] float filtered(const Input& input, float before, float left);
/// s2 of one element, before any pooling.
[[nodiscard]] float variance_of_mean(const Input& input, ElementCount element);
[[nodiscard]] float pooled_variance_of_mean(const Input& input, ElementCount element);
[[nodiscard]] float increment(const Input& input, ElementCount element);
/// r^2 > factor * v in the stated arithmetic.
[[nodiscard]] bool passes_test(float residual, float factor, float variance);
/// A sum of as many terms as a power of two, each half on the other.
[[nodiscard]] double folded(std::vector<double> terms);
[[nodiscard]] Output encode(const Input& input, const State& before);

}  // namespace gradsieve::codec::reference

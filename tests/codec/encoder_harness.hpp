// What the encoder's tests share: pipelines in values, gradients of many kinds, and one call that runs a form of the
// encoder on poisoned memory and compares everything with the reference.
#pragma once

#include "codec/encoder_options.hpp"
#include "reference.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

namespace gradsieve::codec {

[[nodiscard]] Pipeline all_pipeline(QuantizerKind quantizer);
[[nodiscard]] Pipeline variance_pipeline(double alpha, QuantizerKind quantizer, Scope scope = Scope::kTile);
[[nodiscard]] Pipeline faithful_pipeline(double alpha, QuantizerKind quantizer, Scope scope = Scope::kTile);
[[nodiscard]] Pipeline hybrid_pipeline(double alpha, double tau);
[[nodiscard]] Pipeline threshold_pipeline(double tau, QuantizerKind quantizer, Scope scope = Scope::kTile);
[[nodiscard]] Pipeline top_k_pipeline(double ratio, double gate, QuantizerKind quantizer, Scope scope = Scope::kTile);

[[nodiscard]] Pipeline dither_pipeline(const Selector& selector, int levels, Norm norm = Norm::kMax,
                                       Feedback feedback = Feedback::kScaled);

[[nodiscard]] Pipeline natural_pipeline(const Selector& selector, Feedback feedback = Feedback::kScaled);

struct NamedPipeline {
    std::string name;
    Pipeline pipeline;
};
/// At least one of each selector, mode, gate, quantizer and scope.
[[nodiscard]] std::vector<NamedPipeline> every_pipeline();
/// Forms that this CPU has.
[[nodiscard]] std::vector<CpuForm> supported_forms();

enum class DataKind {
    kGaussian,
    kHeavyTailed,
    kConstant,
    kZero,
    kSignedZeros,
    kSubnormal,
    kNearMaximum,
    kWideRange,
    kNotANumber,
    kInfinite,
};
[[nodiscard]] std::vector<DataKind> every_data_kind();
[[nodiscard]] std::string data_kind_name(DataKind kind);
/// `ElementCount` values of a kind; the special kinds have one NaN or infinity near the end.
[[nodiscard]] std::vector<float> make_gradient(DataKind kind, ElementCount elements, std::mt19937_64& random);

/// An input with equal weights; `seed` makes the samples.
[[nodiscard]] reference::Input make_input(const Pipeline& pipeline, ElementCount elements, std::size_t samples,
                                          DataKind kind, std::uint64_t seed);
[[nodiscard]] reference::State zero_state(const reference::Input& input);

/// What a form made of an input, with the state in plain vectors.
struct FormOutput {
    reference::State state;
    EncodeResult result;
};
/// Where the arrays lie relative to a 64-byte boundary, in floats.
struct Placement {
    std::size_t offset_floats = 0;
    bool may_stream = true;
};
/// Runs one form. Outputs are poisoned and fenced first; fails the test if the input generation or a fence changed.
[[nodiscard]] FormOutput run_form(const reference::Input& input, const reference::State& before, CpuForm form,
                                  EncodeWorkspace& workspace, Placement placement = {},
                                  std::uint32_t* selection_hint = nullptr);

/// What receivers get from one node's payloads, by the decoder; fails the test if it refuses them.
[[nodiscard]] std::vector<float> decode_payloads(const std::vector<ChunkPayload>& chunks, ElementCount elements);
/// Elements that decode to something.
[[nodiscard]] std::vector<ElementCount> sent_elements(const std::vector<float>& decoded);

/// One tensor encoded step after step in the fastest form, with its two generations; for simulations. Of codecs whose
/// steps have one phase and are never skipped.
class EncodeLoop {
public:
    EncodeLoop(const Pipeline& pipeline, ElementCount elements, std::size_t samples, std::uint64_t batch_samples,
               bool may_pool = true);
    /// `samples` (and `second_moments`): pointers to `elements` floats. Throws nothing; a failed call fails the test.
    EncodeResult step(std::span<const float* const> samples, std::span<const float* const> second_moments = {});
    EncodeResult step(const std::vector<float>& gradient);
    /// The live generation.
    [[nodiscard]] std::span<float> residual() { return state_[live_].residual; }
    [[nodiscard]] std::span<float> variance() { return state_[live_].variance; }
    [[nodiscard]] std::span<float> momentum() { return state_[live_].momentum; }
    /// What a gradient comes to once it has passed the stages in front: what the next step adds to the residual.
    [[nodiscard]] std::vector<float> handed_in(const std::vector<float>& gradient) const;
    void set_random_seed(std::uint64_t seed) { request_.random_seed = seed; }
    void set_selection_seed(std::uint64_t seed) { request_.selection_seed = seed; }
    void set_rescale(float rescale) { request_.rescale = rescale; }
    void set_node_count(std::uint32_t count) { request_.node_count = count; }

private:
    StateView view(std::size_t generation);

    Pipeline pipeline_;
    std::vector<float> weights_;
    std::array<reference::State, 2> state_;
    std::size_t live_ = 0;
    std::uint32_t hint_ = 0;
    bool may_pool_;
    EncodeRequest request_;
    EncodeWorkspace workspace_;
};

/// Bit equality of states, payloads, counts and locations.
[[nodiscard]] ::testing::AssertionResult equals_reference(const FormOutput& form, const reference::Output& expected);
[[nodiscard]] ::testing::AssertionResult same_bits(const std::vector<float>& left, const std::vector<float>& right);

}  // namespace gradsieve::codec

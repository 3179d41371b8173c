// Requests that do not fit together, and gradients that are not finite.
#include "encoder_harness.hpp"

#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>

namespace gradsieve::codec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A request that is right, to be spoiled.
struct Rig {
    Pipeline pipeline = variance_pipeline(1.5, QuantizerKind::kF32);
    std::vector<float> cells = std::vector<float>(100, 1.0F);
    std::vector<float> out_residual = std::vector<float>(100);
    std::vector<float> out_variance = std::vector<float>(100);
    std::vector<const float*> samples = {cells.data(), cells.data()};
    std::vector<const float*> moments;
    std::vector<float> weights = {0.5F, 0.5F};
    EncodeRequest request;
    EncodeWorkspace workspace;

    Rig() {
        request.pipeline = &pipeline;
        request.elements = 100;
        request.in = {cells.data(), cells.data()};
        request.out = {out_residual.data(), out_variance.data()};
    }
    Status encode() {
        request.samples = samples;
        request.weights = weights;
        request.second_moments = moments;
        return encode_tensor(request, workspace).status();
    }
};

void expect_invalid(const Status& status, const std::string& what, const std::string& seen) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.text(), AllOf(HasSubstr(what), HasSubstr(seen), HasSubstr("allowed"), HasSubstr("; ")));
}

TEST(EncoderErrors, A_right_request_passes) { EXPECT_TRUE(Rig().encode().is_ok()); }
TEST(EncoderErrors, Wrong_counts_are_refused) {
    Rig no_pipeline;
    no_pipeline.request.pipeline = nullptr;
    expect_invalid(no_pipeline.encode(), "pipeline", "null");
    Rig no_samples;
    no_samples.samples.clear();
    expect_invalid(no_samples.encode(), "samples", "0 arrays");
    Rig no_nodes;
    no_nodes.request.node_count = 0;
    expect_invalid(no_nodes.encode(), "node_count", "0");
    Rig few_weights;
    few_weights.weights.pop_back();
    expect_invalid(few_weights.encode(), "weights", "1 for 2");
    Rig too_long;
    too_long.request.elements = ~ElementCount{0};
    expect_invalid(too_long.encode(), "elements", std::to_string(~ElementCount{0}));
}
TEST(EncoderErrors, Null_arrays_are_refused) {
    Rig sample;
    sample.samples[1] = nullptr;
    expect_invalid(sample.encode(), "samples", "null");
    Rig moment;
    moment.moments = {nullptr};
    moment.request.batch_samples = 8;
    expect_invalid(moment.encode(), "second moments", "null");
    Rig residual;
    residual.request.out.residual = nullptr;
    expect_invalid(residual.encode(), "residual", "null");
    Rig variance;
    variance.request.in.variance = nullptr;
    expect_invalid(variance.encode(), "variance", "null");
}
TEST(EncoderErrors, Numbers_out_of_range_are_refused) {
    for (const float weight : {-0.5F, NAN, INFINITY}) {
        Rig rig;
        rig.weights[1] = weight;
        expect_invalid(rig.encode(), "weight of sample 1", std::to_string(weight));
    }
    for (const float rescale : {0.0F, -1.0F, NAN, INFINITY, 1e30F}) {
        Rig rig;
        rig.request.rescale = rescale;
        expect_invalid(rig.encode(), "rescale", std::to_string(rescale));
    }
    Rig batch;
    batch.moments = {batch.cells.data()};
    expect_invalid(batch.encode(), "batch_samples", "0");
}
TEST(EncoderErrors, A_form_this_cpu_lacks_is_refused) {
    for (const CpuForm form : cpu_forms()) {
        Rig rig;
        rig.request.samples = rig.samples;
        rig.request.weights = rig.weights;
        const auto status = encode_tensor_with(rig.request, {form, true, true}, rig.workspace).status();
        EXPECT_EQ(status.is_ok(), is_cpu_form_supported(form));
    }
}
TEST(EncoderErrors, Arrays_that_a_codec_does_not_keep_may_be_null) {
    Rig rig;
    rig.pipeline = all_pipeline(QuantizerKind::kF32);
    rig.request.in = {};
    rig.request.out = {};
    EXPECT_TRUE(rig.encode().is_ok());
    rig.pipeline = top_k_pipeline(0.1, 0, QuantizerKind::kF32);
    rig.request.in.residual = rig.cells.data();
    rig.request.out.residual = rig.out_residual.data();
    EXPECT_TRUE(rig.encode().is_ok());
}

/// Where a form says that a step is not finite; nothing if it is.
std::optional<NonFinite> location(const reference::Input& input, const reference::State& state) {
    std::optional<NonFinite> found;
    EncodeWorkspace workspace;
    for (const CpuForm form : supported_forms()) {
        const auto output = run_form(input, state, form, workspace);
        found = output.result.non_finite;
        EXPECT_TRUE(!found || (output.result.chunks.empty() && output.result.kept_elements == 0));
        const auto expected = reference::encode(input, state).non_finite;
        EXPECT_EQ(found.has_value(), expected.has_value()) << cpu_form_name(form);
    }
    return found;
}

TEST(EncoderErrors, The_first_bad_value_is_named_lowest_element_then_lowest_sample) {
    for (const NamedPipeline& named : every_pipeline()) {
        auto input = make_input(named.pipeline, 300, 4, DataKind::kGaussian, 1);
        input.samples[1][299] = NAN;
        input.samples[3][130] = -INFINITY;
        input.samples[2][130] = NAN;
        input.samples[0][131] = INFINITY;
        const auto found = location(input, zero_state(input));
        ASSERT_TRUE(found) << named.name;
        EXPECT_EQ(found->element, 130U) << named.name;
        EXPECT_EQ(found->sample_index, 2U) << named.name;
    }
}
TEST(EncoderErrors, A_bad_value_counts_even_with_weight_zero) {
    auto input = make_input(all_pipeline(QuantizerKind::kF32), 40, 2, DataKind::kGaussian, 1);
    input.weights = {1.0F, 0.0F};
    input.samples[1][7] = NAN;
    const auto found = location(input, zero_state(input));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->sample_index, 1U);
}
TEST(EncoderErrors, A_bad_second_moment_names_the_first_sample_of_its_rank) {
    auto input = make_input(variance_pipeline(1.0, QuantizerKind::kF32), 100, 4, DataKind::kGaussian, 1);
    input.batch_samples = 64;
    input.second_moments.assign(2, std::vector<float>(100, 1.0F));
    input.second_moments[1][64] = INFINITY;
    const auto found = location(input, zero_state(input));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->element, 64U);
    EXPECT_EQ(found->sample_index, 2U) << "two ranks with two samples each";
}
TEST(EncoderErrors, Finite_inputs_whose_sum_overflows_are_non_finite_too) {
    auto input = make_input(top_k_pipeline(0.1, 0, QuantizerKind::kF32), 100, 1, DataKind::kGaussian, 1);
    reference::State state = zero_state(input);
    state.residual[50] = FLT_MAX;
    input.samples[0][50] = FLT_MAX;
    const auto found = location(input, state);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->element, 50U);
    EXPECT_EQ(found->sample_index, 0U);
}
TEST(EncoderErrors, A_sum_of_second_moments_that_overflows_saturates) {
    auto input = make_input(variance_pipeline(1.0, QuantizerKind::kF32), 40, 1, DataKind::kGaussian, 1);
    input.batch_samples = 1;
    input.second_moments.assign(2, std::vector<float>(40, FLT_MAX));
    EXPECT_FALSE(location(input, zero_state(input)));
}

}  // namespace
}  // namespace gradsieve::codec
